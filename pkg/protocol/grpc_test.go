package protocol

import "testing"

func TestIsGRPC(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc":       true,
		"application/grpc+proto": true,
		"Application/GRPC":       true, "application/grpc; charset=x": false, "application/grpc ": false,
		"application/grpc-web": false,
		"application/grpcx":    false,
		"application/json":     false,
		"":                     false,
	} {
		var h Header
		if contentType != "" {
			h.Add("Content-Type", contentType)
		}
		if got := IsGRPC(&h); got != want {
			t.Errorf("IsGRPC(%q) = %v, want %v", contentType, got, want)
		}
	}
}

func TestGRPCMethod(t *testing.T) {
	for path, want := range map[string][2]string{
		"/shop.Items/List":        {"shop.Items", "List"},
		"/shop.Items/List?a=/b/c": {"shop.Items", "List"},
		"/v1/shop.Items/List":     {"v1/shop.Items", "List"},
		"/shop.Items/":            {"shop.Items", ""},
		"/shop.Items":             {"shop.Items", ""},
		"/":                       {"", ""},
		"*":                       {"*", ""},
		"":                        {"", ""},
	} {
		if service, method := GRPCMethod(path); service != want[0] || method != want[1] {
			t.Errorf("GRPCMethod(%q) = %q, %q, want %q", path, service, method, want)
		}
	}
}

func TestGRPCStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		head, trailer string
		want          int
	}{
		"in the trailers": {trailer: "0", want: 0},
		"in the head":     {head: "14", want: 14},
		"in both":         {head: "14", trailer: "5", want: 5},
		"missing":         {want: NoCode},
		"not a number":    {trailer: "-1", want: NoCode},
		"too many digits": {trailer: "1000", want: NoCode},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			if tt.head != "" {
				r.Header.Add("Grpc-Status", tt.head)
			}
			if tt.trailer != "" {
				r.Trailer.Add("grpc-status", tt.trailer)
			}
			if got := GRPCStatus(&r); got != tt.want {
				t.Errorf("GRPCStatus = %d, want %d", got, tt.want)
			}
		})
	}
}
