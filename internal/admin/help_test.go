package admin

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelpText(t *testing.T) {
	serve := func(http.ResponseWriter, *http.Request) {}
	got := HelpText([]Endpoint{
		{Method: "GET", Path: "/stats?filter=REGEX", Doc: "Statistics.", Handler: serve, Parameters: []Parameter{{"usedonly", "Omit zeros."}, {"filter", "A regular expression."}}},
		{Method: "GET", Path: "/absent", Doc: "No handler."},
		{Method: "GET", Path: "/logging", Doc: "The level.", Handler: serve},
		{Method: "POST", Path: "/logging?level=LEVEL", Doc: "Set the level.", Handler: serve},
		{Method: "GET", Path: "/certs", Doc: "Certificates.", Handler: serve},
	})
	const want = `admin commands are:
  /: The index of the pages.
  /certs: Certificates.
  /logging: The level.
  /logging (POST): Set the level.
  /stats: Statistics.
      usedonly: Omit zeros.
      filter: A regular expression.
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
