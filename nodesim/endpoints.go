package nodesim

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Handler serves what a kubelet serves, as far as volumes go: /stats/summary, /metrics, /pods
// and /healthz. While no kubelet runs, everything answers 503.
func (n *Node) Handler() http.Handler {
	m := http.NewServeMux()
	on := func(path string, serve func(*life, http.ResponseWriter, *http.Request)) {
		m.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			n.mu.Lock()
			l := n.life
			n.mu.Unlock()
			if l == nil {
				http.Error(w, "the kubelet of node "+n.c.Name+" does not run", http.StatusServiceUnavailable)
				return
			}
			serve(l, w, r)
		})
	}
	summary := func(l *life, w http.ResponseWriter, r *http.Request) { writeJSON(w, l.summary(r.Context())) }
	on("/stats/summary", summary)
	on("/stats/summary/{$}", summary)
	on("/metrics", func(l *life, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		l.writeMetrics(r.Context(), w)
	})
	on("/pods", func(l *life, w http.ResponseWriter, _ *http.Request) {
		list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
		for _, p := range l.pods.List() {
			list.Items = append(list.Items, *p)
		}
		writeJSON(w, &list)
	})
	on("/healthz", func(_ *life, w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) })
	return m
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
