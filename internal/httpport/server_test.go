package httpport

import (
	"net"
	"testing"
)

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false,
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsLoopback(a); got != want {
			t.Errorf("IsLoopback(%s) = %v, want %v", address, got, want)
		}
	}
}
