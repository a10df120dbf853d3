package protocol

// EqualFoldUnderscore reports whether an application may treat two header names as the same: they
// differ only in case, or in "_" and "-". Applications that expose headers as variables, as CGI
// does, read X_User as X-User, so code that removes one must remove the other.
func EqualFoldUnderscore(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if x, y := a[i], b[i]; x != y && toLower(x) != toLower(y) && !(isDashOrUnderscore(x) && isDashOrUnderscore(y)) {
			return false
		}
	}
	return true
}

func isDashOrUnderscore(c byte) bool { return c == '-' || c == '_' }
