package lab

import (
	"encoding/json"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const stripped = "***stripped***"

// tokensKey is the volume context entry under which a kubelet hands over service
// account tokens. The specification does not mark it, it is a secret all the same.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// method is what is known of a called method. The zero descriptor is an unknown one.
type method struct {
	name string // bare: NodeStageVolume
	desc protoreflect.MethodDescriptor
}

// methodOf looks up "/csi.v1.Node/NodeStageVolume" in the registered specification.
func methodOf(full string) method {
	m := method{name: path.Base(full)}
	service, name, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok || !strings.HasPrefix(service, "csi.v1.") {
		return m
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return m
	}
	if sd, ok := d.(protoreflect.ServiceDescriptor); ok {
		m.desc = sd.Methods().ByName(protoreflect.Name(name))
	}
	return m
}

func (m method) unary() bool {
	return m.desc != nil && !m.desc.IsStreamingClient() && !m.desc.IsStreamingServer()
}

// decoded is what a request told.
type decoded struct {
	message proto.Message
	volume  string   // handle, or the name of a volume to create
	secrets []string // values that no record may hold
}

// learned is a name for a handle, taken from an answer.
type learned struct{ handle, name string }

// decodeRequest reads a request. One that cannot be read is passed on all the same, with nothing known of it.
func (m method) decodeRequest(data []byte) decoded {
	msg := unmarshal(m.desc.Input(), data)
	if msg == nil {
		return decoded{}
	}
	d := decoded{message: msg, secrets: secretsIn(msg.ProtoReflect(), nil)}
	switch r := msg.(type) {
	case *csi.CreateVolumeRequest:
		d.volume = r.GetName()
	case *csi.CreateSnapshotRequest:
		d.volume = r.GetSourceVolumeId()
	case interface{ GetVolumeId() string }:
		d.volume = r.GetVolumeId()
	}
	return d
}

// decodeResponse gives the recorded form of a response, and what a created volume is called.
func (m method) decodeResponse(data []byte, req decoded) (string, learned) {
	msg := unmarshal(m.desc.Output(), data)
	if msg == nil {
		return "", learned{}
	}
	return recordResponse(msg, req)
}

func recordResponse(msg proto.Message, req decoded) (string, learned) {
	d := decoded{message: msg, secrets: secretsIn(msg.ProtoReflect(), req.secrets)}
	var l learned
	if r, ok := msg.(*csi.CreateVolumeResponse); ok && req.volume != "" {
		l = learned{handle: r.GetVolume().GetVolumeId(), name: req.volume}
	}
	return d.json(), l
}

func unmarshal(d protoreflect.MessageDescriptor, data []byte) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil
	}
	msg := t.New().Interface()
	if proto.Unmarshal(data, msg) != nil {
		return nil
	}
	return msg
}

// json is the message without secrets; empty for one that is not known.
func (d decoded) json() string {
	if d.message == nil {
		return ""
	}
	msg := d.message
	if hasTokens(msg.ProtoReflect()) {
		msg = proto.Clone(msg)
		stripTokens(msg.ProtoReflect())
	}
	return d.censor(protosanitizer.StripSecrets(msg).String())
}

// censor cuts secrets out of a text that a driver made of them.
func (d decoded) censor(text string) string {
	for _, s := range d.secrets {
		text = strings.ReplaceAll(text, s, stripped)
		if q, err := json.Marshal(s); err == nil && len(q) > 2 {
			text = strings.ReplaceAll(text, string(q[1:len(q)-1]), stripped) // as it stands inside JSON
		}
	}
	return text
}

// shortestSecret is the length from which a secret is looked for in texts: shorter
// ones, such as a user called "a", would only blacken ordinary words.
const shortestSecret = 4

// secretsIn collects the values of secret fields.
func secretsIn(m protoreflect.Message, to []string) []string {
	add := func(v string) {
		if len(v) >= shortestSecret {
			to = append(to, v)
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		secret, _ := proto.GetExtension(f.Options(), csi.E_CsiSecret).(bool)
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if f.MapValue().Kind() == protoreflect.StringKind && (secret || k.String() == tokensKey) {
					add(v.String())
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				if f.Kind() == protoreflect.MessageKind {
					to = secretsIn(v.List().Get(i).Message(), to)
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			to = secretsIn(v.Message(), to)
		case secret && f.Kind() == protoreflect.StringKind:
			add(v.String())
		}
		return true
	})
	return to
}

func hasTokens(m protoreflect.Message) bool {
	found := false
	eachContext(m, func(c protoreflect.Map, k protoreflect.MapKey) { found = true })
	return found
}

func stripTokens(m protoreflect.Message) {
	eachContext(m, func(c protoreflect.Map, k protoreflect.MapKey) { c.Set(k, protoreflect.ValueOfString(stripped)) })
}

// eachContext visits the string maps of a message that hold service account tokens.
func eachContext(m protoreflect.Message, visit func(protoreflect.Map, protoreflect.MapKey)) {
	k := protoreflect.ValueOfString(tokensKey).MapKey()
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.StringKind && v.Map().Has(k) {
				visit(v.Map(), k)
			}
		case f.IsList():
			if f.Kind() == protoreflect.MessageKind {
				for i := range v.List().Len() {
					eachContext(v.List().Get(i).Message(), visit)
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			eachContext(v.Message(), visit)
		}
		return true
	})
}

// bounded cuts s to about limit bytes, never within a character, and says so.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "... (cut)"
}
