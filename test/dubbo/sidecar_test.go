package dubbo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// echo is the interface of all providers of these tests.
const echo = "weft.interop.dubbo.Echo"

// object is a JSON object.
type object map[string]any

// exports returns the groups and versions that every provider exports.
func exports() [][2]string {
	return [][2]string{{"", ""}, {"blue", "1.0"}, {"green", "1.0"}, {"green", "2.0"}}
}

// exportKey returns the key of an export in the API.
func exportKey(export [2]string) string {
	key := echo
	if export[0] != "" {
		key = export[0] + "/" + key
	}
	if export[1] != "" {
		key += ":" + export[1]
	}
	return key
}

// sidecarOptions configures a sidecar.
type sidecarOptions struct {
	registry       string        // address of a ZooKeeper
	providerPort   int           // port of the local provider; 0: none
	sessionTimeout time.Duration // session timeout of the registry; 0: 2 s
}

// sidecar is a Weft with the API of Dubbo services.
type sidecar struct {
	t       *testing.T
	weft    *process
	options sidecarOptions
	path    string // of its configuration

	ingress, egress, api, admin int // ports
}

// startSidecar runs Weft until the end of the test and returns when it is ready.
func startSidecar(t *testing.T, options sidecarOptions) *sidecar {
	t.Helper()
	w := &sidecar{t: t, options: options, path: filepath.Join(t.TempDir(), "weft.json"),
		ingress: freePort(t), egress: freePort(t), api: freePort(t), admin: freePort(t)}
	text, err := json.MarshalIndent(w.config(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	t.Cleanup(w.logFailures) // before the process ends
	return w
}

func (w *sidecar) accessLog() string { return filepath.Join(filepath.Dir(w.path), "access.log") }

// logFailures adds the last calls that Weft could not complete to the log of a failed test.
func (w *sidecar) logFailures() {
	if !w.t.Failed() {
		return
	}
	text, err := os.ReadFile(w.accessLog())
	if err != nil {
		w.t.Log(err)
		return
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "- ") })
	w.t.Logf("the last of %d failed calls:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

// restart starts Weft again with its state file.
func (w *sidecar) restart() {
	w.t.Helper()
	w.weft = start(w.t, "weft", os.Getenv(weftEnv), "start", "-c", w.path)
	w.weft.awaitLine("is ready")
}

func (w *sidecar) stateFile() string { return filepath.Join(filepath.Dir(w.path), "state.json") }

func (w *sidecar) config() object {
	if w.options.sessionTimeout == 0 {
		w.options.sessionTimeout = 2 * time.Second
	}
	listener := func(name, listenerType, address string, port int, table string) object {
		return object{"name": name, "type": listenerType, "address": fmt.Sprintf("%s:%d", address, port),
			"access_logs": []object{{"log_path": w.accessLog(), "log_format": "%response_flag% %start_time% %upstream_host% %response_detail%"}},
			"filter_chains": []object{{
				"filters": []object{{"type": "proxy", "config": object{"downstream_protocol": "dubbo", "router_config_name": table}}}}}}
	}
	return object{
		"servers": []object{{
			"default_log_path": "stderr", "graceful_timeout": "20s",
			"listeners": []object{listener("ingress", "ingress", host, w.ingress, "local"), listener("egress", "egress", "127.0.0.1", w.egress, "dubbo")},
			"routers": []object{{"router_config_name": "local", "virtual_hosts": []object{{"name": "all", "domains": []string{"*"},
				"routers": []object{{"match": object{"headers": []object{{"name": "service", "value": ".*", "regex": true}}},
					"route": object{"cluster_name": "app", "timeout": "0s"}}}}}}},
		}},
		"cluster_manager": object{"clusters": []object{{"name": "app", "hosts": []object{{"address": fmt.Sprintf("127.0.0.1:%d", max(w.options.providerPort, 1))}}}}},
		"extends": []object{{"type": "dubbo_registry", "config": object{
			"enable": true, "host": host, "server_port": w.ingress, "api_port": w.api, "withdraw_wait": "2s",
			"state_file": w.stateFile(),
			"registries": []object{{"type": "zookeeper", "address": w.options.registry, "session_timeout": w.options.sessionTimeout.String()}},
		}}},
		"admin": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": w.admin}}},
	}
}

// callAPI makes an API call about a service, and fails the test unless the call succeeds.
func (w *sidecar) callAPI(path string, service object) {
	w.t.Helper()
	body, err := json.Marshal(object{"service": service})
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := fetch(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", w.api, path), body)
	if err != nil || !strings.Contains(text, `"err_no":0`) {
		w.t.Fatalf("POST %s %s: %s %v", path, body, text, err)
	}
}

// callAPIForExports makes an API call about each export, with additional keys if given.
func (w *sidecar) callAPIForExports(path string, extra ...object) {
	w.t.Helper()
	for _, export := range exports() {
		service := object{"interface": echo, "methods": []string{"name", "nameAfter", "say"}, "group": export[0], "version": export[1]}
		for _, m := range extra {
			maps.Copy(service, m)
		}
		w.callAPI(path, service)
	}
}

// awaitSaved waits until the state file has all services that callAPIForExports published.
func (w *sidecar) awaitSaved() {
	w.t.Helper()
	eventually(w.t, func() string {
		text, err := os.ReadFile(w.stateFile())
		if err != nil {
			return err.Error()
		}
		var state struct {
			Content struct {
				Published []json.RawMessage `json:"published"`
			} `json:"content"`
		}
		if err := json.Unmarshal(text, &state); err != nil {
			return err.Error()
		}
		if n := len(state.Content.Published); n != len(exports()) {
			return fmt.Sprintf("saved %d published services, want %d", n, len(exports()))
		}
		return ""
	})
}

// service is the API's description of a subscribed service.
type service struct {
	LoadBalance string     `json:"load_balance"`
	Timeout     string     `json:"timeout"`
	Providers   []provider `json:"providers"`
	Sources     []struct {
		Age   string `json:"age"`
		Error string `json:"error"`
	} `json:"sources"`
}

type provider struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	Unused  string `json:"unused_reason"`
}

// activeAddresses returns the addresses that receive calls, sorted.
func (s service) activeAddresses() []string {
	var out []string
	for _, p := range s.Providers {
		if p.Unused == "" {
			out = append(out, p.Address)
		}
	}
	slices.Sort(out)
	return out
}

// subscribed returns the API's description of a subscribed service by its key.
func (w *sidecar) subscribed(key string) (service, error) {
	text, err := fetch(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/services", w.api), nil)
	if err != nil {
		return service{}, err
	}
	var response struct {
		Subscribed []struct {
			Key string `json:"key"`
			service
		} `json:"subscribed"`
	}
	if err := json.Unmarshal([]byte(text), &response); err != nil {
		return service{}, err
	}
	for _, s := range response.Subscribed {
		if s.Key == key {
			return s.service, nil
		}
	}
	return service{}, fmt.Errorf("%s is not subscribed: %s", key, text)
}

// awaitProviders waits until calls of every export go to exactly these ports of host. A Dubbo 3
// application registers its first service immediately, and the others a second later.
func (w *sidecar) awaitProviders(ports ...int) {
	w.t.Helper()
	for _, export := range exports() {
		w.awaitExport(export, ports...)
	}
}

// awaitExport waits until calls of one export go to exactly these ports of host.
func (w *sidecar) awaitExport(export [2]string, ports ...int) {
	w.t.Helper()
	var want []string
	for _, port := range ports {
		want = append(want, fmt.Sprintf("%s:%d", host, port))
	}
	slices.Sort(want)
	key := exportKey(export)
	eventually(w.t, func() string {
		s, err := w.subscribed(key)
		if err != nil {
			return err.Error()
		}
		if got := s.activeAddresses(); !slices.Equal(got, want) {
			return fmt.Sprintf("calls of %s go to %v, want %v", key, got, want)
		}
		return ""
	})
}

// fetch makes an HTTP request and returns the response body; a status other than 200 is an error.
func fetch(method, url string, body []byte) (string, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: waitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // the body was read to the end
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s", errUnexpectedStatus, response.Status)
	}
	return string(text), err
}
