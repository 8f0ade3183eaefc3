package api

// Routes lists what the handler serves: method and pattern.
func Routes() (out []string) {
	s := &server{}
	for _, r := range append(s.routes(), s.extensions()...) {
		out = append(out, r.method+" "+r.pattern)
	}
	return out
}
