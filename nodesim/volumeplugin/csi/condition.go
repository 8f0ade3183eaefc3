package csi

import (
	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
)

// Condition is the condition of a volume in the statistics of a driver that is built on CSI up
// to 1.12. Its field is not in the specification any more, and so among what is unknown:
// message VolumeCondition { bool abnormal = 1; string message = 2; } as field 2.
type Condition struct {
	Abnormal bool
	Message  string
}

// ConditionIn finds it; false if there is none.
func ConditionIn(r *csipb.NodeGetVolumeStatsResponse) (c Condition, ok bool) {
	err := eachField(r.ProtoReflect().GetUnknown(), func(n protowire.Number, t protowire.Type, value []byte) {
		if n != 2 || t != protowire.BytesType {
			return
		}
		inner, _ := protowire.ConsumeBytes(value)
		ok = eachField(inner, func(n protowire.Number, t protowire.Type, value []byte) {
			switch {
			case n == 1 && t == protowire.VarintType:
				v, _ := protowire.ConsumeVarint(value)
				c.Abnormal = v != 0
			case n == 2 && t == protowire.BytesType:
				text, _ := protowire.ConsumeBytes(value)
				c.Message = string(text)
			}
		}) == nil
	})
	return c, ok && err == nil
}

// eachField calls f for each field of an encoded message.
func eachField(b []byte, f func(protowire.Number, protowire.Type, []byte)) error {
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(n, t, b[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		f(n, t, b[tag:tag+size])
		b = b[tag+size:]
	}
	return nil
}
