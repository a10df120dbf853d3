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
// authorizes calls to a provider.
func TestSecretsAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		env := newTestEnv(t, defaultConfig())
		env.log = slog.New(slog.NewTextHandler(&log, nil))
		env.discovery = env.newDiscovery(defaultConfig())
		env.run()
		defer env.end()
		req := request("x")
		req.Registry.Username, req.Registry.Password = "u", "s3cret"
		req.Service.Parameters = map[string]string{"token": "s3cret", "a.access-key": "s3cret", "weight": "7"}
		env.fake.set(false, errors.New("no"))
		_ = env.discovery.Publish(t.Context(), req) // the registry rejects the URL, and Weft logs it
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		text, err := json.Marshal(env.discovery.Status())
		must(t, err)
		for output, content := range map[string]string{"the API": string(text), "the log": log.String()} {
			if strings.Contains(content, "s3cret") || !strings.Contains(content, "weight=7") {
				t.Errorf("%s is %s, want weight=7 and no secret", output, content)
			}
		}
		if got := fmt.Sprint(env.fake.urls); !strings.Contains(got, "token=s3cret") {
			t.Errorf("registered URLs %s, want one with the token", got)
		}
	})
}
