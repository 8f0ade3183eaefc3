package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"

	"github.com/go-chi/chi/v5"
)

//go:embed static
var embedded embed.FS

// assets are the page's files, served under a path that holds a hash of them all.
// So a browser may keep them for ever, relative imports keep working, and a page
// never mixes files of two versions.
type assets struct {
	files fs.FS
	hash  string
	live  bool // the files may change under us
}

func loadAssets(files fs.FS) (*assets, error) {
	a := &assets{files: files, live: files != nil}
	if files == nil {
		sub, err := fs.Sub(embedded, "static")
		if err != nil {
			return nil, err
		}
		a.files = sub
	}
	sum := sha256.New()
	err := fs.WalkDir(a.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(a.files, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(data))
		sum.Write(data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.hash = hex.EncodeToString(sum.Sum(nil))[:16]
	return a, nil
}

// page is the one page. Its links to files carry the hash.
func (a *assets) page(w http.ResponseWriter, r *http.Request) {
	data, err := fs.ReadFile(a.files, "index.html")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(bytes.ReplaceAll(data, []byte("{{assets}}"), []byte("/a/"+a.hash)))
}

func (a *assets) file(w http.ResponseWriter, r *http.Request) {
	if chi.URLParam(r, "hash") != a.hash {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "this file belongs to another version of the dashboard; reload the page", http.StatusNotFound)
		return
	}
	a.serve(w, chi.URLParam(r, "*"))
}

// icon answers browsers that ask for it without having read the page.
func (a *assets) icon(w http.ResponseWriter, r *http.Request) { a.serve(w, "favicon.svg") }

func (a *assets) serve(w http.ResponseWriter, name string) {
	data, err := fs.ReadFile(a.files, name)
	if err != nil || name == "index.html" {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	// Types by our own table first: a machine's mime files may say something else of .js.
	ctype := contentTypes[path.Ext(name)]
	if ctype == "" {
		ctype = mime.TypeByExtension(path.Ext(name))
	}
	w.Header().Set("Content-Type", ctype)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if a.live {
		w.Header().Set("Cache-Control", "no-store")
	}
	w.Write(data)
}

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8",
}
