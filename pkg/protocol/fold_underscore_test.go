package protocol

import "testing"

func TestEqualFoldUnderscore(t *testing.T) {
	for _, test := range []struct {
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
		if got := EqualFoldUnderscore(test.a, test.b); got != test.want {
			t.Errorf("Alike(%q, %q) = %t, want %t", test.a, test.b, got, test.want)
		}
	}
}
