package corpus

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// expand puts the values of variables in place of ${NAME}.
func expand(s string, vars map[string]string) string {
	for k, v := range vars {
		s = strings.ReplaceAll(s, "${"+k+"}", v)
	}
	return repeated.ReplaceAllStringFunc(s, func(m string) string {
		what, n, _ := strings.Cut(m[2:len(m)-1], "*")
		count, _ := strconv.Atoi(n) // the pattern has digits only
		return strings.Repeat(what, count)
	})
}

// repeated is a letter so many times: ${x*1000}.
var repeated = regexp.MustCompile(`\$\{[a-z]\*\d{1,7}\}`)

// lookup follows a path such as a.b[0]["x/y"].c.
func lookup(v any, path string) (any, bool) {
	for path != "" {
		var key string
		switch {
		case path[0] == '.':
			path = path[1:]
			continue
		case path[0] == '[':
			end := strings.Index(path, "]")
			if end < 0 {
				return nil, false
			}
			key, path = path[1:end], path[end+1:]
			if i, err := strconv.Atoi(key); err == nil {
				l, ok := v.([]any)
				if !ok || i >= len(l) {
					return nil, false
				}
				v = l[i]
				continue
			}
			key = strings.Trim(key, `"`)
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			key, path = path[:end], path[end:]
		}
		if l, ok := v.([]any); ok && key == "#" {
			v = float64(len(l))
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// same compares a value with its text in the table, which is JSON or a bare string.
func same(v any, want string) bool {
	var w any
	if err := json.Unmarshal([]byte(want), &w); err == nil {
		a, _ := json.Marshal(v)
		b, _ := json.Marshal(w)
		if string(a) == string(b) {
			return true
		}
	}
	s, ok := v.(string)
	return ok && s == want
}
