package protocol

// EqualFoldUnderscore reports whether an application may take one name of a field for another: they
// are the same but for case, and for "_" and "-". Those that make variables of fields
// take X_User for X-User, so that who removes one must remove the other.
func EqualFoldUnderscore(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if x, y := a[i], b[i]; x != y && lower(x) != lower(y) && !(isDash(x) && isDash(y)) {
			return false
		}
	}
	return true
}

func isDash(c byte) bool { return c == '-' || c == '_' }
