// Sets the theme before the first paint. A classic script on purpose: modules run too late for that.
(() => {
  try {
    const t = localStorage.getItem("drydock-theme");
    if (t === "light" || t === "dark") document.documentElement.dataset.theme = t;
  } catch { /* storage may be forbidden; the system's theme it is */ }
})();
