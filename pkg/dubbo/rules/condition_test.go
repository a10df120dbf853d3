package rules_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/rules"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/registry"
)

func providers(t testing.TB) (urls []registry.URL) {
	for _, text := range []string{
		"dubbo://10.0.0.1:20880/com.foo.Bar?application=stock&region=hangzhou",
		"dubbo://10.0.0.2:20880/com.foo.Bar?application=stock&region=beijing",
		"dubbo://10.0.1.3:20881/com.foo.Bar?application=store&region=hangzhou&dubbo.tag=gray",
	} {
		urls = append(urls, parse(t, text))
	}
	return urls
}

// conditionRule returns a rule of Dubbo 2.6, with additional parameters.
func conditionRule(protocol, rule string, extra ...string) registry.URL {
	parameters := map[string]string{"rule": rule}
	for _, parameter := range extra {
		key, value, _ := strings.Cut(parameter, "=")
		parameters[key] = value
	}
	return registry.URL{Protocol: protocol, Host: "0.0.0.0", Path: "com.foo.Bar", Parameters: registry.ParametersOf(parameters)}
}

// call contains the properties that rules evaluate: "method", "attachment user", "argument 0".
type call map[string]string

func (c call) Attachment(name string) (value string, ok bool) {
	if name == "method" {
		value, ok = c[name]
		return value, ok
	}
	value, ok = c["attachment "+name]
	return value, ok
}

func (c call) Argument(i int) (value string, ok bool) {
	value, ok = c[fmt.Sprint("argument ", i)]
	return value, ok
}

// selected returns the indexes of the providers that a chain selects for a call.
func selected(c *rules.RouterChain, request call) []int {
	allowed := config.NewHostSet(c.Len())
	c.Select(request, allowed)
	indexes := []int{}
	for i := range c.Len() {
		if allowed.Has(i) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// allowedProviders returns the numbers of the providers that are selected for a call, from 1.
func allowedProviders(r *rules.Routers, providerURLs []registry.URL, request map[string]string) string {
	var parts []string
	for _, i := range selected(r.ChainFor(consumer(), rules.Tag{}, false, providerURLs), request) {
		parts = append(parts, fmt.Sprint(i+1))
	}
	return strings.Join(parts, " ")
}

func TestConditions(t *testing.T) {
	request := map[string]string{"method": "getName", "attachment user": "ann", "argument 0": "7"}
	tests := []struct {
		name, rule string
		parameters []string
		want       string
	}{
		{"host of the consumer and of the provider", "host = 10.9.9.9 => host = 10.0.0.2", nil, "2"},
		{"other consumer", "host = 10.9.9.8 => host = 10.0.0.2", nil, "1 2 3"},
		{"host wildcards", "host = 10.9.* => host = 10.0.0.*", nil, "1 2"},
		{"reject all consumers but two", "host != 10.20.153.10,10.20.153.11 =>", nil, ""},
		{"accepted consumer", "host != 10.9.9.9 =>", nil, "1 2 3"},
		{"without =>", "host = 10.0.0.1", nil, "1"},
		{"all but one provider", "=> host != 10.0.0.1", nil, "2 3"},
		{"all but some providers", "=> host != 10.0.0.1,10.0.0.2", nil, "3"},
		{"included and excluded hosts", "=> host = 10.0.* & host != 10.0.0.2", nil, "1 3"},
		{"address", "=> address = 10.0.1.3:20881", nil, "3"},
		{"port", "=> port = 20880", nil, "1 2"},
		{"true and false", "true => false", nil, ""},
		{"parameter of the consumer", "=> region = $region", nil, "1 3"},
		{"host of the consumer", "=> host = $host", []string{"force=true"}, ""},
		{"no match", "=> host = 10.1.1.1", nil, "1 2 3"},
		{"no match, forced", "=> host = 10.1.1.1", []string{"force=true"}, ""},
		{"application of the consumer", "application = shop => region = beijing", nil, "2"},
		{"unknown key", "moon = full => false", nil, "1 2 3"},
		{"unknown key with !=", "moon != full => host = 10.0.0.1", nil, "1 2 3"},
		{"key that only some providers have", "=> dubbo.tag != blue", []string{"force=true"}, "3"},
		{"any value", "=> dubbo.tag = *", []string{"force=true"}, "3"},
		{"range without an upper bound", "=> port = 20881~", nil, "3"},
		{"range with both bounds", "=> port = 20000~20880", nil, "1 2"},
		{"range or value", "=> port = ~20, 20881", nil, "3"},
		{"excluded range", "=> port != ~20880", nil, "3"},
		{"range with a value that is not a number", "=> region = 0~9", []string{"force=true"}, ""},
		{"prefixes of Dubbo 2.6", "consumer.host = 10.9.9.9 => provider.host = 10.0.0.1", nil, "1"},
		{"disabled", "=> host = 10.0.0.1", []string{"enabled=false"}, "1 2 3"},
		{"methods", "method = find*,list*,get*,is* => host = 10.0.0.1", nil, "1"},
		{"methods that do not match", "method = find*,list* => host = 10.0.0.1", nil, "1 2 3"},
		{"excluded methods", "method != find*,list* => host = 10.0.0.1", nil, "1"},
		{"method and consumer", "method = getName & host = 10.9.9.9 => host = 10.0.0.1", nil, "1"},
		{"attachment", "attachments[user] = ann => host = 10.0.0.1", nil, "1"},
		{"missing attachment", "attachments[role] = admin => host = 10.0.0.1", nil, "1 2 3"},
		{"argument", "arguments[0] = 7 => host = 10.0.0.1", nil, "1"},
		{"missing argument", "arguments[1] = 7 => host = 10.0.0.1", nil, "1 2 3"},
		{"missing argument with !=", "arguments[1] != 7 => host = 10.0.0.1", nil, "1"},
		{"missing attachment with !=", "attachments[role] != admin => host = 10.0.0.1", nil, "1 2 3"},
		{"argument in a range", "arguments[0] = 1~7 => host = 10.0.0.1", nil, "1"},
		{"argument outside a range", "arguments[0] = 8~ => host = 10.0.0.1", nil, "1 2 3"},
		{"argument with a range or a value", "arguments[0] = 1~2,7 => host = 10.0.0.1", nil, "1"},
		{"attachment with a dollar", "attachments[user] = $host,ann => host = 10.0.0.1", nil, "1"},
		{"large argument index with !=", "arguments[1000] != 7 => host = 10.0.0.1", nil, "1"},
		{"argument outside an excluded range", "arguments[0] != 1~5,9 => host = 10.0.0.1", nil, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, protocol := range []string{"condition", "route"} {
				r := rules.ReadRouters([]registry.URL{conditionRule(protocol, tt.rule, tt.parameters...)}, func(text string) { t.Error(text) })
				if got := allowedProviders(r, providers(t), request); got != tt.want {
					t.Errorf("%s: remaining providers of %q = %q, want %q", protocol, tt.rule, got, tt.want)
				}
			}
		})
	}
}

func TestConditionDocuments(t *testing.T) {
	tests := []struct{ name, document, want string }{
		{"one condition", "service com.foo.Bar::\nconfigVersion: v2.7\nforce: true\nruntime: true\nconditions: ['=> region = hangzhou']", "1 3"},
		{"two conditions", "service com.foo.Bar::\nconditions:\n- '=> region = hangzhou'\n- '=> port = 20880'", "1"},
		{"forced", "service com.foo.Bar::\nforce: true\nconditions: ['=> region = paris']", ""},
		{"force as a string", "service com.foo.Bar::\nforce: 'true'\nconditions: ['=> region = paris']", ""},
		{"disabled", "service com.foo.Bar::\nenabled: false\nconditions: ['=> region = hangzhou']", "1 2 3"},
		{"valid: false", "service com.foo.Bar::\nvalid: false\nconditions: ['=> region = hangzhou']", "1 2 3"},
		{"application of the consumer", "application shop\nconditions: ['=> region = hangzhou']", "1 3"},
		{"application of some providers", "application stock\nconditions: ['=> region = hangzhou']", "1 3"},
		{"application of some providers, rejecting all calls", "application store\nconditions: ['=>']", "1 2"},
		{"other application", "application other\nconditions: ['=>']", "1 2 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rules.ReadRouters([]registry.URL{read(t, "condition", tt.document)}, func(text string) { t.Error(text) })
			if got := allowedProviders(r, providers(t), nil); got != tt.want {
				t.Errorf("remaining providers = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConditionsApplyByPriority(t *testing.T) {
	r := rules.ReadRouters([]registry.URL{
		conditionRule("condition", "=> host = 10.0.0.2", "priority=2"), conditionRule("condition", "=> host = 10.0.0.1", "priority=1"),
	}, func(text string) { t.Error(text) })
	if got := allowedProviders(r, providers(t), nil); got != "1" { // the second matches no provider and is not forced
		t.Errorf("remaining providers = %q, want 1", got)
	}
}

func TestInvalidRoutersAreReported(t *testing.T) {
	tests := []struct {
		name string
		rule registry.URL
		want string
	}{
		{"empty", conditionRule("condition", ""), "the condition is empty"},
		{"value without a key", conditionRule("condition", "= 1 => host = 1"), `unexpected "=" before "1"`},
		{"list without a key", conditionRule("condition", "host,10 => host = 1"), `unexpected "," before "10"`},
		{"two separators", conditionRule("condition", "host == 10 => host = 1"), `unexpected "==" before "10"`},
		{"operator without a value", conditionRule("condition", "host = => host = 1"), "no key or value after"},
		{"key without a value", conditionRule("condition", "host => host = 1"), `key "host" has no value`},
		{"invalid argument index", conditionRule("condition", "arguments[a]=1 => host = 1"), "has no valid argument index"},
		{"invalid range", conditionRule("condition", "=> port = 1~b"), `"1~b" is not a valid range`},
		{"script router", conditionRule("route", "", "router=script"), `"script" are not supported`},
		{"document of Dubbo 3.3", read(t, "condition", "service x\nconfigVersion: v3.1\nconditions: [{from: {match: a=1}}]"), "a condition must be a string"},
		{"invalid document", read(t, "condition", "service x\nconditions: ["), "cannot parse the document"},
		{"tag without a name", read(t, "tag", "application x\ntags: [{addresses: [a]}]"), "the tag has no name"},
		{"tag with an unknown match", read(t, "tag", "application x\ntags: [{name: a, match: [{key: b, value: {like: c}}]}]"), "unknown match like"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			warning := ""
			r := rules.ReadRouters([]registry.URL{tt.rule}, func(text string) { warning += text })
			if got := allowedProviders(r, providers(t), nil); got != "1 2 3" || !strings.Contains(warning, tt.want) {
				t.Errorf("remaining providers = %s, warning = %q; want a warning with %q", got, warning, tt.want)
			}
		})
	}
}

func TestTags(t *testing.T) {
	const rule = "application stock\nforce: %v\ntags:\n- name: blue\n  addresses: ['10.0.0.1:20880']\n- name: gone\n  addresses: ['10.9.9.9:1']\n- name: near\n  match: [{key: region, value: {exact: beijing}}]\n"
	tests := []struct {
		name, rule, tag string
		force           bool
		want            string
	}{
		{"call without tag", "", "", false, "[0 1]"},
		{"tag of a provider", "", "gray", false, "[2]"},
		{"unknown tag", "", "blue", false, "[0 1]"},
		{"unknown tag, forced", "", "blue", true, "[]"},
		{"tag of a rule", fmt.Sprintf(rule, false), "blue", false, "[0]"},
		{"tag of a rule by a parameter", fmt.Sprintf(rule, false), "near", false, "[1]"},
		{"tag of a rule without providers", fmt.Sprintf(rule, false), "gone", false, "[]"}, // all have a tag
		{"tag of a forced rule without providers", fmt.Sprintf(rule, true), "gone", false, "[]"},
		{"call without tag, with a rule", "application stock\ntags: [{name: blue, addresses: ['10.0.0.1:20880']}]", "", false, "[1]"},
		{"disabled rule", "application stock\nenabled: false\ntags: [{name: blue, addresses: ['10.0.0.1:20880']}]", "", false, "[0 1]"},
		{"rule of another application", "application other\ntags: [{name: blue, addresses: ['10.0.0.1:20880']}]", "", false, "[0 1]"},
		{"network", "application stock\ntags: [{name: blue, addresses: [10.0.0.0/24]}]", "blue", false, "[0 1]"},
		{"range", "application stock\ntags: [{name: blue, addresses: ['10.0.0.2-9:20880']}]", "blue", false, "[1]"},
		{"addresses take precedence over match", "application stock\ntags: [{name: blue, addresses: ['10.0.0.1:20880'], match: [{key: region, value: {exact: beijing}}]}]", "blue", false, "[0]"},
		{"tag without addresses", "application store\nforce: true\ntags: [{name: gray, addresses: []}]", "gray", false, "[2]"},
		{"tag whose match selects no provider", "application store\nforce: true\ntags: [{name: gray, match: [{key: region, value: {exact: paris}}]}]", "gray", false, "[2]"},
		{"unknown tag in a rule without addresses", "application stock\nforce: true\ntags: [{name: blue, addresses: []}]", "blue", false, "[0 1]"},
		{"rule with valid: false", "application stock\nvalid: false\ntags: [{name: blue, addresses: ['10.0.0.1:20880']}]", "", false, "[0 1]"},
		{"any port", "application stock\ntags: [{name: blue, addresses: ['10.0.0.2:*']}]", "blue", false, "[1]"},
		{"any host with the port", "application stock\ntags: [{name: blue, addresses: ['*:20880']}]", "blue", false, "[0 1]"},
		{"host wildcard with another port", "application stock\ntags: [{name: blue, addresses: ['10.0.0.*:1']}]", "blue", true, "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var urls []registry.URL
			if tt.rule != "" {
				urls = append(urls, read(t, "tag", tt.rule))
			}
			r := rules.ReadRouters(urls, func(text string) { t.Error(text) })
			request := call{"attachment dubbo.tag": tt.tag, "attachment dubbo.force.tag": fmt.Sprint(tt.force)}
			if got := fmt.Sprint(selected(r.ChainFor(consumer(), rules.Tag{}, true, providers(t)), request)); got != tt.want {
				t.Errorf("remaining providers = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestHaveTags(t *testing.T) {
	const rule = "application %s\ntags: [{name: gone, addresses: ['10.9.9.9:1']}]"
	urls := providers(t)
	for _, tt := range []struct {
		application string
		providers   []registry.URL
		want        bool
	}{{"stock", urls[:2], true}, {"other", urls[:2], false}, {"other", urls, true}} {
		r := rules.ReadRouters([]registry.URL{read(t, "tag", fmt.Sprintf(rule, tt.application))}, nil)
		if got := r.HaveTags(tt.providers); got != tt.want {
			t.Errorf("a rule of %s, %d providers: %v, want %v", tt.application, len(tt.providers), got, tt.want)
		}
	}
}

// TestOutcomesAreComplete compares Outcomes with the results of Select for all combinations of
// attachments.
func TestOutcomesAreComplete(t *testing.T) {
	r := rules.ReadRouters([]registry.URL{
		conditionRule("condition", "attachments[a] = 1 => host = 10.0.0.1"),
		conditionRule("condition", "attachments[b] = 1 => region = hangzhou", "force=true"),
		conditionRule("condition", "attachments[c] = 1 =>"),
		read(t, "tag", "application stock\nforce: true\ntags: [{name: blue, addresses: ['10.0.0.2:20880']}]"),
	}, func(text string) { t.Error(text) })
	chain := r.ChainFor(consumer(), rules.Tag{}, true, providers(t))
	want := map[string]bool{}
	for i := range 8 {
		for _, tag := range []string{"", "blue", "gray", "other"} {
			for _, force := range []string{"", "true"} {
				request := call{"attachment dubbo.tag": tag, "attachment dubbo.force.tag": force}
				for bit, name := range []string{"a", "b", "c"} {
					request["attachment "+name] = fmt.Sprint(i >> bit & 1)
				}
				want[fmt.Sprint(selected(chain, request))] = true
			}
		}
	}
	sets, ok := chain.Outcomes(16)
	got := map[string]bool{}
	for _, set := range sets {
		indexes := []int{}
		for i := range chain.Len() {
			if set.Has(i) {
				indexes = append(indexes, i)
			}
		}
		got[fmt.Sprint(indexes)] = true
	}
	if !ok || !maps.Equal(got, want) || len(sets) != len(got) {
		t.Errorf("Outcomes = %v, ok %t, %d sets; want %v once each", got, ok, len(sets), want)
	}
	if _, ok := chain.Outcomes(2); ok {
		t.Error("Outcomes(2) reports ok, want more than two outcomes")
	}
}

func TestSelectDoesNotAllocate(t *testing.T) {
	r := rules.ReadRouters([]registry.URL{
		conditionRule("condition", "attachments[user] = ann,b*,1~9 & method != set* => host = 10.0.0.1"),
		read(t, "tag", "application stock\ntags: [{name: blue, addresses: ['10.0.0.2:20880']}]"),
	}, func(text string) { t.Error(text) })
	chain := r.ChainFor(consumer(), rules.Tag{}, true, providers(t))
	allowed := config.NewHostSet(chain.Len())
	exchange := &protocol.Exchange{}
	for name, value := range map[string]string{"method": "getName", "user": "eve", "dubbo.tag": "blue"} {
		exchange.Request.Header.Add(name, value)
	}
	if n := testing.AllocsPerRun(100, func() { chain.Select(exchange, allowed) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func FuzzRouters(f *testing.F) {
	f.Add("host = 10.9.9.9 & method=get* => host != 10.0.0.1,$host", "conditions: ['method=a => host=b']", "tags: [{name: blue, addresses: ['10.0.0.1-3:20880', '::1-f']}]")
	f.Fuzz(func(t *testing.T, rule, conditions, tags string) {
		r := rules.ReadRouters([]registry.URL{
			conditionRule("condition", rule), document("condition", "application", "stock", conditions), document("tag", "application", "stock", tags),
		}, func(string) {})
		urls := providers(t)
		allowedProviders(r, urls, map[string]string{"method": "get"})
		chain := r.ChainFor(consumer(), rules.Tag{}, true, urls)
		for _, name := range []string{"", "blue", "gray", tags} {
			request := call{"method": "get", "attachment dubbo.tag": name, "attachment dubbo.force.tag": "true"}
			forced := selected(chain, request)
			delete(request, "attachment dubbo.force.tag")
			if urls := selected(chain, request); len(forced) > 0 && fmt.Sprint(forced) != fmt.Sprint(urls) {
				t.Errorf("with force %v, without %v", forced, urls)
			}
		}
	})
}
