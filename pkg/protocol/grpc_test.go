package protocol

import "testing"

func TestIsGRPC(t *testing.T) {
	for kind, want := range map[string]bool{
		"application/grpc":       true,
		"application/grpc+proto": true,
		"Application/GRPC":       true, "application/grpc; charset=x": false, "application/grpc ": false,
		"application/grpc-web": false,
		"application/grpcx":    false,
		"application/json":     false,
		"":                     false,
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
	for name, test := range map[string]struct {
		head, trailer string
		want          int
	}{
		"of the trailers":          {trailer: "0", want: 0},
		"of the head":              {head: "14", want: 14},
		"of the trailers, if both": {head: "14", trailer: "5", want: 5},
		"not told":                 {want: NoCode},
		"no number":                {trailer: "-1", want: NoCode},
		"too long a number":        {trailer: "1000", want: NoCode},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			if test.head != "" {
				r.Header.Add("Grpc-Status", test.head)
			}
			if test.trailer != "" {
				r.Trailer.Add("grpc-status", test.trailer)
			}
			if got := GRPCStatus(&r); got != test.want {
				t.Errorf("GRPCStatus = %d, want %d", got, test.want)
			}
		})
	}
}
