package service

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestRetryOnRepeatedHeader(t *testing.T) {
	h := new(protocol.Header)
	h.Add("x-again", "no")
	h.Add("X-Again", "yes")
	for value, want := range map[string]bool{"yes": true, "no": true, "": true, "no,yes": false, "never": false} {
		if got := hasRetriableHeader([]config.RetryHeader{{Name: "x-again", Value: value}}, h); got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
}
