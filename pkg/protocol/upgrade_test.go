package protocol

import "testing"

func TestCarriesHTTP(t *testing.T) {
	for name, want := range map[string]bool{
		"h2c": true, "H2C": true, "h2": true, "http": true, "HTTP": true, "tls": true,
		"websocket": false, "connect-udp": false, "h2cc": false, "": false,
	} {
		if got := CarriesHTTP(name); got != want {
			t.Errorf("CarriesHTTP(%q) = %t, want %t", name, got, want)
		}
	}
}
