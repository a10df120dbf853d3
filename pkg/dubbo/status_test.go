package dubbo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSecretsAreNotShown verifies that the API and the log omit secrets, such as the token that
// authorizes calls of a provider.
func TestSecretsAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, defaultConfig())
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.discovery = r.newDiscovery(defaultConfig())
		r.run()
		defer r.end()
		q := request("x")
		q.Registry.Username, q.Registry.Password = "u", "s3cret"
		q.Service.Parameters = map[string]string{"token": "s3cret", "a.access-key": "s3cret", "weight": "7"}
		r.fake.set(false, errors.New("no"))
		_ = r.discovery.Publish(t.Context(), q) // it is rejected and logged
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		text, err := json.Marshal(r.discovery.Status())
		must(t, err)
		for where, said := range map[string]string{"the API": string(text), "the log": log.String()} {
			if strings.Contains(said, "s3cret") || !strings.Contains(said, "weight=7") {
				t.Errorf("%s contains %s", where, said)
			}
		}
		if got := fmt.Sprint(r.fake.urls); !strings.Contains(got, "token=s3cret") {
			t.Errorf("registered is %s", got)
		}
	})
}
