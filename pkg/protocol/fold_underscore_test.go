package protocol

import "testing"

func TestEqualFoldUnderscore(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"X-User", "x-user", true},
		{"X-User", "x_user", true},
		{"a_b-c", "A-B_C", true},
		{"X-User", "X-Users", false},
		{"X-User", "X.User", false},
		{"", "", true},
	} {
		if got := EqualFoldUnderscore(tt.a, tt.b); got != tt.want {
			t.Errorf("EqualFoldUnderscore(%q, %q) = %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
}
