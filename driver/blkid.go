package driver

import (
	"errors"
	"strings"
)

// parseBlkid reads the output of blkid -o export about one device.
func parseBlkid(out string) (content, error) {
	var c content
	keys := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			keys[k] = v
		}
	}
	switch {
	case keys["TYPE"] != "" && (keys["USAGE"] == "filesystem" || keys["USAGE"] == ""):
		c.fs = FSType(keys["TYPE"])
	case keys["TYPE"] != "": // raid, crypto, other
		c.other = keys["TYPE"] + " (" + keys["USAGE"] + ")"
	case keys["PTTYPE"] != "":
		c.other = "partition table " + keys["PTTYPE"]
	default:
		return c, errors.New("blkid found something, and does not say what")
	}
	return c, nil
}
