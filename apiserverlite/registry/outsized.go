package registry

// Outsized finds a number with an exponent of more than three digits in a request body of any encoding.
//
// Kubernetes' quantities take such numbers, and then calculate with all their digits: reading
// "1e-99999999" as a size, or comparing "1e2147483647" with another, takes minutes and gigabytes. No volume has such
// a size, so a body that holds one as a value of its own is better refused before it is decoded.
func Outsized(body []byte) (string, bool) {
	for i := 0; i < len(body); i++ {
		if body[i] != 'e' && body[i] != 'E' {
			continue
		}
		start := i
		for start > 0 && (digit(body[start-1]) || body[start-1] == '.') {
			start--
		}
		digits := i + 1
		if digits < len(body) && (body[digits] == '-' || body[digits] == '+') {
			digits++
		}
		first := digits
		for first < len(body) && body[first] == '0' {
			first++
		}
		end := first
		for end < len(body) && digit(body[end]) {
			end++
		}
		if start < i && end-first > 3 && begins(body, start) && (end == len(body) || !wordly(body[end]) && body[end] != '-') {
			return string(body[start:end]), true
		}
	}
	return "", false
}

// begins tells whether a value begins at i. A sign or, in JSON, a colon may stand before it, if there is no word
// before that: parts of UUIDs look like numbers.
func begins(body []byte, i int) bool {
	for i > 0 && (body[i-1] == '-' || body[i-1] == '+' || body[i-1] == ':') {
		i--
	}
	return i == 0 || !wordly(body[i-1])
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// wordly tells whether a character makes what is beside it a part of something longer: a digest, a name, a version.
func wordly(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '_' || c == '/' || c == ':' || c >= 0x80
}
