package server

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
)

// discovery describes a set of resources. It never changes.
type discovery struct {
	groups    []metav1.APIGroup
	resources map[schema.GroupVersion]*metav1.APIResourceList
	// The aggregated documents, by path and by version of the discovery API.
	documents map[string]map[string]document
}

type document struct {
	body []byte
	etag string
}

const aggregatedAs = "APIGroupDiscoveryList"

// addQuestions adds the kinds that are answered and not kept.
func (s *Server) addQuestions() {
	for _, q := range questions() {
		if _, taken := s.byGVR[q.gvr]; taken {
			s.byGVR[q.gvr].answer = q.answer // the registry describes it, the server answers it
			continue
		}
		r := q.asResource()
		s.resources = append(s.resources, r)
		s.byGVR[q.gvr] = r
	}
}

func newDiscovery(resources []*resource) *discovery {
	d := &discovery{}
	byGroup := map[string]*apidiscoveryv2.APIGroupDiscovery{}
	var order []string
	d.resources = map[schema.GroupVersion]*metav1.APIResourceList{}
	stored := map[schema.GroupResource]schema.GroupVersionKind{}
	for _, r := range resources {
		if r.ToStorage == nil {
			stored[r.Storage] = r.GVK
		}
	}
	for _, r := range resources {
		g := byGroup[r.GVR.Group]
		if g == nil {
			g = &apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: r.GVR.Group}}
			byGroup[r.GVR.Group] = g
			order = append(order, r.GVR.Group)
		}
		i := slices.IndexFunc(g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == r.GVR.Version })
		if i < 0 {
			i = len(g.Versions)
			g.Versions = append(g.Versions, apidiscoveryv2.APIVersionDiscovery{Version: r.GVR.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
		}
		g.Versions[i].Resources = append(g.Versions[i].Resources, aggregated(r))
		gv := r.GVR.GroupVersion()
		l := d.resources[gv]
		if l == nil {
			l = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
			if gv.Group == "" {
				l.APIVersion = "" // as upstream's core group has been told of from the start
			}
			d.resources[gv] = l
		}
		kind := stored[r.Storage]
		if r.main != nil { // the version that is stored may not be served
			kind = r.main.GVK
		}
		l.APIResources = append(l.APIResources, legacy(r, kind)...)
	}
	d.documents = map[string]map[string]document{}
	for path, core := range map[string]bool{"/api": true, "/apis": false} {
		list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: aggregatedAs}, Items: []apidiscoveryv2.APIGroupDiscovery{}}
		for _, name := range order {
			if (name == "") == core {
				list.Items = append(list.Items, *byGroup[name])
			}
		}
		d.documents[path] = map[string]document{}
		for _, v := range []string{"v2", "v2beta1"} { // one shape, two names
			list.APIVersion = "apidiscovery.k8s.io/" + v
			b, _ := json.Marshal(list) // names and kinds: it cannot fail
			sum := sha512.Sum512(b)
			d.documents[path][v] = document{append(b, '\n'), `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
		}
	}
	for _, name := range order {
		d.groups = append(d.groups, legacyGroup(byGroup[name]))
	}
	return d
}

func aggregated(r *resource) apidiscoveryv2.APIResourceDiscovery {
	gv := r.GVR.GroupVersion()
	if !r.Protobuf { // custom resources' kinds are told in full
		gv = schema.GroupVersion{}
	}
	out := apidiscoveryv2.APIResourceDiscovery{Resource: r.GVR.Resource, ResponseKind: kindIn(r.GVK, gv), Scope: apidiscoveryv2.ScopeCluster,
		SingularResource: r.Singular, Verbs: verbsOf(r), ShortNames: r.ShortNames, Categories: r.Categories}
	if r.Namespaced {
		out.Scope = apidiscoveryv2.ScopeNamespace
	}
	for _, name := range subNames(r) {
		sub := r.Subresources[name]
		out.Subresources = append(out.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: name, ResponseKind: kindIn(subKind(r, sub), gv), Verbs: sorted(sub.Verbs)})
	}
	return out
}

// kindIn leaves out group and version where they are the enclosing ones.
func kindIn(k schema.GroupVersionKind, gv schema.GroupVersion) *metav1.GroupVersionKind {
	if k.GroupVersion() == gv {
		return &metav1.GroupVersionKind{Kind: k.Kind}
	}
	return &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

func subKind(r *resource, sub registry.Subresource) schema.GroupVersionKind {
	if sub.GVK.Empty() {
		return r.GVK
	}
	return sub.GVK
}

func subNames(r *resource) []string {
	var out []string
	for n := range r.Subresources {
		out = append(out, n)
	}
	sort.Strings(out)
	if !r.Protobuf && r.Custom != nil { // the order in which upstream wrote custom resources' down
		slices.Reverse(out)
	}
	return out
}

func sorted(v []string) []string {
	v = slices.Clone(v)
	slices.Sort(v)
	return v
}

// verbsOf are in the alphabet's order, but for custom resources', which are in the one that upstream wrote them down in.
func verbsOf(r *resource) []string {
	out := sorted(r.Verbs)
	if i := slices.Index(out, "create"); i == 0 && !r.Protobuf {
		out = slices.Insert(out[1:], max(0, slices.Index(out, "update")-1), "create")
	}
	return out
}

// legacy describes a resource whose objects are stored as that kind, if they are stored.
func legacy(r *resource, stored schema.GroupVersionKind) []metav1.APIResource {
	out := []metav1.APIResource{{Name: r.GVR.Resource, SingularName: r.Singular, Namespaced: r.Namespaced, Kind: r.GVK.Kind, Verbs: verbsOf(r),
		ShortNames: r.ShortNames, Categories: r.Categories}}
	if r.answer == nil && r.GR() != definitionResource { // upstream's server of definitions tells of no hash
		out[0].StorageVersionHash = storageVersionHash(stored)
	}
	for _, name := range subNames(r) {
		sub := r.Subresources[name]
		e := metav1.APIResource{Name: r.GVR.Resource + "/" + name, Namespaced: r.Namespaced, Kind: subKind(r, sub).Kind, Verbs: sorted(sub.Verbs)}
		if !sub.GVK.Empty() && sub.GVK.GroupVersion() != r.GVR.GroupVersion() {
			e.Group, e.Version = sub.GVK.Group, sub.GVK.Version
		}
		out = append(out, e)
	}
	return out
}

// storageVersionHash is how discovery tells clients, without words, as what objects are stored.
func storageVersionHash(k schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(k.Group + "/" + k.Version + "/" + k.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

func legacyGroup(g *apidiscoveryv2.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.Name}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}.String(), Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

// wantsAggregated returns the version of the discovery API that the client prefers over the legacy form, or "".
func wantsAggregated(r *http.Request) string {
	for _, c := range goautoneg.ParseAccept(r.Header.Get("Accept")) {
		if c.SubType != "json" && c.SubType != "*" {
			continue
		}
		if c.Params["as"] == "" {
			return "" // the legacy form comes first
		}
		v := c.Params["v"]
		if c.Params["g"] == "apidiscovery.k8s.io" && c.Params["as"] == aggregatedAs && (v == "v2" || v == "v2beta1") {
			return v
		}
	}
	return ""
}

// sendAggregated is false when the client wants the legacy form.
func (s *Server) sendAggregated(w http.ResponseWriter, r *http.Request, path string) bool {
	v := wantsAggregated(r)
	if v == "" {
		return false
	}
	w.Header().Set("Vary", "Accept")
	d := s.defined().discovery.documents[path][v]
	w.Header().Set("ETag", d.etag)
	if r.Header.Get("If-None-Match") == d.etag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	w.Header().Set("Cache-Control", "public")
	s.send(w, r, http.StatusOK, typeJSON+";g=apidiscovery.k8s.io;v="+v+";as="+aggregatedAs, d.body)
	return true
}

func (s *Server) coreVersions(w http.ResponseWriter, r *http.Request) error {
	if s.sendAggregated(w, r, "/api") {
		return nil
	}
	address := s.cfg.Address
	if address == "" {
		address = r.Host
	}
	return s.sendOld(w, r, notAcceptable, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}})
}

func (s *Server) groupList(w http.ResponseWriter, r *http.Request) error {
	if s.sendAggregated(w, r, "/apis") {
		return nil
	}
	l := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range s.defined().discovery.groups {
		if g.Name != "" {
			g.TypeMeta = metav1.TypeMeta{}
			l.Groups = append(l.Groups, g)
		}
	}
	return s.sendOld(w, r, notAcceptable, l)
}

// groupVersion serves /api/v1, /apis/group and /apis/group/version.
func (s *Server) groupVersion(w http.ResponseWriter, r *http.Request, in info) {
	err := func() error {
		if in.version == "" {
			for _, g := range s.defined().discovery.groups {
				if g.Name == in.group && in.group != "" {
					return s.sendOld(w, r, unavailable, &g)
				}
			}
			return s.nowhere(in.group)
		}
		l, ok := s.defined().discovery.resources[schema.GroupVersion{Group: in.group, Version: in.version}]
		if !ok {
			return s.nowhere(in.group)
		}
		return s.sendObject(w, r, l)
	}()
	if err != nil {
		s.fail(w, r, outputFor(r), err)
	}
}

func (s *Server) sendObject(w http.ResponseWriter, r *http.Request, o runtime.Object) error {
	out, ok := negotiate(r, offer{protobuf: true})
	if !ok {
		return notAcceptable(acceptable(true))
	}
	return s.sendAs(w, r, out, o)
}

// sendOld is sendObject for the documents that upstream has not taught CBOR.
func (s *Server) sendOld(w http.ResponseWriter, r *http.Request, refuse func(types []string) error, o runtime.Object) error {
	out, ok := negotiate(r, offer{protobuf: true, noCBOR: true})
	if !ok {
		return refuse([]string{typeJSON, typeYAML, typeProtobuf})
	}
	return s.sendAs(w, r, out, o)
}

func (s *Server) sendAs(w http.ResponseWriter, r *http.Request, out output, o runtime.Object) error {
	b, err := s.codecs.encode(out.media, out.pretty, o)
	if err != nil {
		return err
	}
	s.send(w, r, http.StatusOK, out.media.contentType(), b)
	return nil
}

func gvr(in info) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: in.group, Version: in.version, Resource: in.resource}
}
