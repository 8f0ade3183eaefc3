package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// plainName is what the cloud takes as a name.
var plainName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// cloudName is the name in the cloud of what CSI calls name. It is the same where the
// cloud takes it, as with a provisioner's pvc-<uuid>; others are replaced by a digest.
func cloudName(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "csi-" + hex.EncodeToString(sum[:20])
}

// origin is what a volume's description in the cloud says of how it was made. The
// cloud keeps no other record of which snapshot a volume came from.
type origin struct {
	name   string // the CSI name
	source SnapshotID
}

const (
	describesVolume = "Made by drydock for volume "
	describesSource = " from snapshot "
)

func (o origin) String() string {
	s := describesVolume + o.name
	if o.source != "" {
		s += describesSource + string(o.source)
	}
	return s
}

// parseOrigin reads a description; false if this driver did not write it.
func parseOrigin(s string) (origin, bool) {
	rest, ok := strings.CutPrefix(s, describesVolume)
	if !ok {
		return origin{}, false
	}
	if i := strings.LastIndex(rest, describesSource); i >= 0 {
		if id := SnapshotID(rest[i+len(describesSource):]); known(id) {
			return origin{rest[:i], id}, true
		}
	}
	return origin{name: rest}, true
}
