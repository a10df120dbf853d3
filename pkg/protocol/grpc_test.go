package protocol

import "testing"

func TestOnlyGRPCIsGRPC(t *testing.T) {
	for kind, want := range map[string]bool{
		"application/grpc":            true,
		"application/grpc+proto":      true,
		"Application/GRPC; charset=x": true,
		"application/grpc-web":        false,
		"application/grpcx":           false,
		"application/json":            false,
		"":                            false,
	} {
		var h Header
		if kind != "" {
			h.Add("Content-Type", kind)
		}
		if got := IsGRPC(&h); got != want {
			t.Errorf("IsGRPC(%q) = %v", kind, got)
		}
	}
}
