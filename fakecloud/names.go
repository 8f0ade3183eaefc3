package fakecloud

import (
	"regexp"
	"unicode/utf8"

	"drydock.dev/drydock/fakecloud/blockdev"
)

var (
	strictName  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	dropletName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,253}[a-zA-Z0-9])?$`)
	tagName     = regexp.MustCompile(`^[a-zA-Z0-9_:-]{1,255}$`)
)

// valid checks a volume's name. A lenient one still has to be a file name behind
// the link's prefix.
func (r NameRule) valid(name string) bool {
	if r == NamesStrict {
		return strictName.MatchString(name)
	}
	const room = 255 - len(blockdev.LinkPrefix) - len(".drydock-tmp")
	if name == "" || len(name) > room || !utf8.ValidString(name) {
		return false
	}
	for _, c := range name {
		if c < ' ' || c == 0x7f || c == '/' {
			return false
		}
	}
	return true
}

// filesystems lists the preformatted kinds and how long their labels may be.
var filesystems = map[string]int{"ext4": 16, "xfs": 12}
