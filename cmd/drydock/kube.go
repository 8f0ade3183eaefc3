package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// kube is the thin client behind apply, delete and get, for machines without kubectl.
type kube struct {
	rest    *rest.Config
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

func newKube(cfg *rest.Config) (*kube, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster what it serves: %w", err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), d, nil)
	return &kube{rest: cfg, dynamic: dyn, mapper: mapper}, nil
}

// manifest is one object with the place it came from.
type manifest struct {
	unstructured.Unstructured
	from string
}

// readManifests reads every document of every file, or none: an error anywhere changes nothing in the cluster.
func readManifests(files []string, stdin io.Reader) ([]manifest, error) {
	var out []manifest
	for _, name := range files {
		paths := []string{name}
		if fi, err := os.Stat(name); err == nil && fi.IsDir() {
			paths = nil
			for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
				found, _ := filepath.Glob(filepath.Join(name, pattern))
				paths = append(paths, found...)
			}
			if slices.Sort(paths); len(paths) == 0 {
				return nil, fmt.Errorf("directory %s has no .yaml, .yml or .json file", name)
			}
		}
		for _, p := range paths {
			var r io.Reader = stdin
			if p != "-" {
				b, err := os.ReadFile(p)
				if err != nil {
					return nil, fmt.Errorf("read manifest: %w", err)
				}
				r = bytes.NewReader(b)
			}
			objs, err := decodeManifests(r, p)
			if err != nil {
				return nil, err
			}
			out = append(out, objs...)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no object in %s", strings.Join(files, ", "))
	}
	return out, nil
}

func decodeManifests(r io.Reader, name string) ([]manifest, error) {
	dec := yaml.NewYAMLOrJSONDecoder(r, 4096)
	var out []manifest
	for n := 1; ; n++ {
		var raw map[string]any
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %s, document %d cannot be parsed: %w; nothing was applied", name, n, err)
		}
		if len(raw) == 0 {
			continue
		}
		o := manifest{unstructured.Unstructured{Object: raw}, fmt.Sprintf("%s, document %d", name, n)}
		if o.GetAPIVersion() == "" || o.GetKind() == "" {
			return nil, fmt.Errorf("manifest %s has no apiVersion or no kind; nothing was applied", o.from)
		}
		if o.IsList() {
			err = o.EachListItem(func(item runtime.Object) error {
				out = append(out, manifest{*item.(*unstructured.Unstructured), o.from})
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("manifest %s: %w; nothing was applied", o.from, err)
			}
			continue
		}
		if o.GetName() == "" {
			return nil, fmt.Errorf("manifest %s (%s) has no metadata.name; nothing was applied", o.from, o.GetKind())
		}
		out = append(out, o)
	}
}

// resource finds where an object goes.
func (k *kube) resource(o manifest, namespace string) (dynamic.ResourceInterface, *meta.RESTMapping, error) {
	gvk := o.GroupVersionKind()
	m, err := k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: the cluster serves no %s: %w", o.from, gvk, err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return k.dynamic.Resource(m.Resource), m, nil
	}
	if o.GetNamespace() != "" {
		namespace = o.GetNamespace()
	}
	return k.dynamic.Resource(m.Resource).Namespace(namespace), m, nil
}

func shown(m *meta.RESTMapping, name string) string {
	res := m.Resource.Resource
	if m.Resource.Group != "" {
		res += "." + m.Resource.Group
	}
	return res + "/" + name
}

// apply applies the manifests on the server's side, as "kubectl apply --server-side" does.
// A kind that the cluster does not serve is refused before the first object is applied.
func (k *kube) apply(ctx context.Context, out io.Writer, objs []manifest, namespace string) error {
	for _, o := range objs {
		if _, _, err := k.resource(o, namespace); err != nil {
			return fmt.Errorf("%w; nothing was applied", err)
		}
	}
	for _, o := range objs {
		r, m, err := k.resource(o, namespace)
		if err != nil {
			return err
		}
		if _, err := r.Apply(ctx, o.GetName(), &o.Unstructured, metav1.ApplyOptions{FieldManager: "drydock"}); err != nil {
			return fmt.Errorf("apply %s of %s: %w", shown(m, o.GetName()), o.from, err)
		}
		fmt.Fprintf(out, "%s applied\n", shown(m, o.GetName()))
	}
	return nil
}

func newApply(f *flags) *cobra.Command {
	return f.onManifests("apply", "Apply manifests (server-side)", (*kube).apply)
}

func newDelete(f *flags) *cobra.Command {
	return f.onManifests("delete", "Delete what manifests name", (*kube).delete)
}

// onManifests is a command that does something with the objects of files.
func (f *flags) onManifests(verb, short string, do func(*kube, context.Context, io.Writer, []manifest, string) error) *cobra.Command {
	var files []string
	var namespace string
	cmd := &cobra.Command{
		Use: verb + " -f FILE", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usageError{fmt.Errorf("%s needs -f FILE; - is standard input", verb)}
			}
			objs, err := readManifests(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			k, err := f.kube()
			if err != nil {
				return err
			}
			return do(k, cmd.Context(), cmd.OutOrStdout(), objs, namespace)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file or directory of manifests, or - for standard input")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of objects that name none")
	return cmd
}

// delete deletes what the manifests name, users before what they use.
func (k *kube) delete(ctx context.Context, out io.Writer, objs []manifest, namespace string) error {
	background := metav1.DeletePropagationBackground
	for _, o := range slices.Backward(objs) {
		r, m, err := k.resource(o, namespace)
		if err != nil {
			return err
		}
		err = r.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		switch {
		case apierrors.IsNotFound(err):
			fmt.Fprintf(out, "%s is not there\n", shown(m, o.GetName()))
		case err != nil:
			return fmt.Errorf("delete %s: %w", shown(m, o.GetName()), err)
		default:
			fmt.Fprintf(out, "%s deleted\n", shown(m, o.GetName()))
		}
	}
	return nil
}

func (f *flags) kube() (*kube, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return newKube(r.rest)
}

func newGet(f *flags) *cobra.Command {
	var namespace, format string
	var all, wide bool
	cmd := &cobra.Command{
		Use: "get RESOURCE[,RESOURCE...] [NAME]", Short: "Show objects as tables", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch format {
			case "", "json":
			case "wide":
				wide = true
			default:
				return usageError{fmt.Errorf("output format %q: wide and json are known; kubectl knows more", format)}
			}
			kinds := strings.Split(args[0], ",")
			if format == "json" && len(kinds) > 1 {
				return usageError{errors.New("json is for one resource at a time")}
			}
			k, err := f.kube()
			if err != nil {
				return err
			}
			if all {
				namespace = ""
			}
			for i, kind := range kinds {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				args[0] = kind
				if err := k.get(cmd.Context(), cmd.OutOrStdout(), args, namespace, format == "json", wide); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace to look in")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "look in every namespace")
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, or json for programs")
	return cmd
}

// get prints the server's own table.
func (k *kube) get(ctx context.Context, out io.Writer, args []string, namespace string, asJSON, wide bool) error {
	gvr, err := k.mapper.ResourceFor(schema.ParseGroupResource(args[0]).WithVersion(""))
	if err != nil {
		return fmt.Errorf("the cluster serves no %q: %w", args[0], err)
	}
	gvk, err := k.mapper.KindFor(gvr)
	if err != nil {
		return err
	}
	m, err := k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	path := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		path = []string{"/api", gvr.Version}
	}
	namespaced := m.Scope.Name() != meta.RESTScopeNameRoot
	if namespaced && namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	path = append(path, gvr.Resource)
	path = append(path, args[1:]...)
	cfg := rest.CopyConfig(k.rest)
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return err
	}
	accept := "application/json;as=Table;v=v1;g=meta.k8s.io"
	if asJSON {
		accept = "application/json"
	}
	result := client.Get().AbsPath(path...).SetHeader("Accept", accept).Do(ctx)
	if err := result.Error(); err != nil {
		return fmt.Errorf("get %s: %w", strings.Join(args, " "), err)
	}
	body, err := result.Raw()
	if err != nil {
		return fmt.Errorf("get %s: %w", strings.Join(args, " "), err)
	}
	if asJSON {
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			return err
		}
		return printJSON(out, v)
	}
	var t metav1.Table
	if err := json.Unmarshal(body, &t); err != nil {
		return fmt.Errorf("get %s: the answer is no table: %w", strings.Join(args, " "), err)
	}
	if len(t.Rows) == 0 {
		fmt.Fprintf(out, "no %s found\n", gvr.Resource)
		return nil
	}
	printTable(out, t, wide, namespaced && namespace == "")
	return nil
}

func printTable(out io.Writer, t metav1.Table, wide, namespaces bool) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(ns string, cells func(i int) string) {
		var line []string
		if namespaces {
			line = append(line, ns)
		}
		for i, col := range t.ColumnDefinitions {
			if wide || col.Priority == 0 {
				line = append(line, cells(i))
			}
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	row("NAMESPACE", func(i int) string { return strings.ToUpper(t.ColumnDefinitions[i].Name) })
	for _, r := range t.Rows {
		var o metav1.PartialObjectMetadata
		json.Unmarshal(r.Object.Raw, &o) // a row without an object has no namespace to show
		row(o.Namespace, func(i int) string {
			if r.Cells[i] == nil {
				return ""
			}
			return fmt.Sprint(r.Cells[i])
		})
	}
	w.Flush()
}
