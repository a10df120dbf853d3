package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServicesUsesAddressOfFile verifies that services uses the API address and the token of the
// file.
func TestServicesUsesAddressOfFile(t *testing.T) {
	requests := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path + " " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"err_no":1,"err_msg":"the token is wrong"}`))
	}))
	defer server.Close()
	port := server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	path := filepath.Join(t.TempDir(), "config.json")
	write := func(enable string) {
		text := `{"servers": [{"listeners": []}], "extends": [{"type": "dubbo_registry", "config": {"enable": ` + enable + `, "api_port": ` + port + `, "token": "t0ken"}}]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("true")
	cmd := servicesCommand()
	cmd.SetArgs([]string{"-c", path})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != "the token is wrong" {
		t.Errorf("the command fails with %v, want the error of the API", err)
	}
	if got := <-requests; got != "/services Bearer t0ken" {
		t.Errorf("the request is %q, want \"/services Bearer t0ken\"", got)
	}
	write("false")
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no enabled dubbo_registry") {
		t.Errorf("for a file with the disabled extension the command returns %v, want an error that says so", err)
	}
}
