package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/dubbo/rules"
	"github.com/weft-proxy/weft/pkg/registry"
)

func parse(t testing.TB, text string) registry.URL {
	t.Helper()
	u, err := registry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// document returns a document of the configuration center as registries pass it.
func document(protocol, scope, key, yaml string) registry.URL {
	return registry.URL{Protocol: protocol, Host: "0.0.0.0", Path: key, Parameters: registry.ParametersOf(map[string]string{
		"category": "configurators", "config": key + "." + protocol, "scope": scope, "yaml": yaml,
	})}
}

// read returns a rule from a URL, or from a document with scope and key in the first line.
func read(t testing.TB, protocol, text string) registry.URL {
	t.Helper()
	if strings.Contains(text, "://") && !strings.Contains(text, "\n") {
		return parse(t, text)
	}
	head, yaml, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	scope, key, _ := strings.Cut(head, " ")
	return document(protocol, scope, key, yaml)
}

func consumer() registry.URL {
	return registry.URL{Protocol: "consumer", Host: "10.9.9.9", Path: "com.foo.Bar", Parameters: registry.ParametersOf(map[string]string{
		"application": "shop", "side": "consumer", "category": "consumers", "interface": "com.foo.Bar", "region": "hangzhou",
	})}
}

func TestConfigurators(t *testing.T) {
	const provider = "dubbo://10.0.0.1:20880/com.foo.Bar?application=stock&side=provider&timeout=3000&interface=com.foo.Bar"
	item := func(scope, items string) string {
		return scope + "\nconfigVersion: v2.7\nenabled: true\nconfigs:\n" + items
	}
	tests := []struct {
		name  string
		rules []string
		// want contains the changed parameters of the provider, and wantCall those of the consumer,
		// which were "timeout=100".
		want, wantCall string
	}{
		{"no rules", nil, "", ""},
		{"all hosts", []string{"override://0.0.0.0/com.foo.Bar?category=configurators&dynamic=false&weight=200"}, "weight=200", "weight=200"},
		{"provider", []string{"override://10.0.0.1:20880/com.foo.Bar?category=configurators&disabled=true"}, "disabled=true", "disabled=true"},
		{"other provider", []string{"override://10.0.0.2:20880/com.foo.Bar?category=configurators&disabled=true"}, "", ""},
		{"other port", []string{"override://10.0.0.1:20881/com.foo.Bar?category=configurators&disabled=true"}, "", ""},
		{"all hosts with a port", []string{"override://0.0.0.0:20880/com.foo.Bar?category=configurators&weight=1"}, "weight=1", "weight=1"},
		{"consumer", []string{"override://10.9.9.9/com.foo.Bar?category=configurators&retries=0"}, "retries=0", "retries=0"},
		{"other consumer", []string{"override://10.9.9.8/com.foo.Bar?category=configurators&retries=0"}, "", ""},
		{"application of the consumer", []string{"override://0.0.0.0/com.foo.Bar?application=shop&retries=0"}, "retries=0", "retries=0"},
		{"application of the provider", []string{"override://0.0.0.0/com.foo.Bar?application=stock&retries=0"}, "retries=0", ""},
		{"other application", []string{"override://0.0.0.0/com.foo.Bar?application=other&retries=0"}, "", ""},
		{"application as the user name", []string{"override://shop@0.0.0.0/com.foo.Bar?retries=0"}, "retries=0", "retries=0"},
		{"parameter of the consumer", []string{"override://0.0.0.0/com.foo.Bar?timeout=7"}, "timeout=7", "timeout=7"},
		{"side", []string{"override://0.0.0.0/com.foo.Bar?side=provider&timeout=7"}, "timeout=7", ""},
		{"other version", []string{"override://0.0.0.0/com.foo.Bar?category=configurators&version=2&disabled=true"}, "", ""},
		{"other group", []string{"override://0.0.0.0/com.foo.Bar?category=configurators&group=g&disabled=true"}, "", ""},
		{"any version", []string{"override://0.0.0.0/com.foo.Bar?category=configurators&version=*&weight=1"}, "weight=1", "weight=1"},
		{"absent rule", []string{"absent://0.0.0.0/com.foo.Bar?timeout=7&retries=1"}, "retries=1", "retries=1"},
		{"disabled", []string{"override://0.0.0.0/com.foo.Bar?enabled=false&timeout=7"}, "", ""},
		{"protected parameters", []string{"override://0.0.0.0/com.foo.Bar?group=g&version=2&side=consumer&check=true&interface=x"}, "", ""},
		{"condition that matches", []string{"override://0.0.0.0/com.foo.Bar?~region=hangzhou&retries=0"}, "retries=0", "retries=0"},
		{"condition that does not match", []string{"override://0.0.0.0/com.foo.Bar?~region=beijing&retries=0"}, "", ""},
		{"condition on the provider", []string{"override://0.0.0.0/com.foo.Bar?~timeout=3000&retries=0"}, "retries=0", "retries=0"},
		{"provider takes precedence over all hosts", []string{"override://10.0.0.1:20880/com.foo.Bar?weight=1", "override://0.0.0.0/com.foo.Bar?weight=2"}, "weight=1", "weight=1"},
		{"higher priority applies last", []string{"override://0.0.0.0/com.foo.Bar?weight=1&priority=2", "override://0.0.0.0/com.foo.Bar?weight=2&priority=1"}, "weight=1", "weight=1"},
		{"empty protocol", []string{"override://0.0.0.0/com.foo.Bar?weight=1", "empty://0.0.0.0/com.foo.Bar?category=configurators"}, "", ""},
		{"provider addresses", []string{"override://0.0.0.0/com.foo.Bar?weight=1&providerAddresses=10.0.0.2:1,10.0.0.1:20880"}, "weight=1", "weight=1"},

		{"service, consumers", []string{item("service com.foo.Bar::", "- addresses: [0.0.0.0]\n  side: consumer\n  parameters: {timeout: 6000}")}, "timeout=6000", "timeout=6000"},
		{"service, providers", []string{item("service com.foo.Bar::", "- addresses: ['0.0.0.0']\n  side: provider\n  parameters: {timeout: 6000}")}, "timeout=6000", ""},
		{"service, one provider", []string{item("service com.foo.Bar::", "- addresses: ['10.0.0.1:20880']\n  side: provider\n  parameters: {weight: '6'}")}, "weight=6", ""},
		{"service, other port", []string{item("service com.foo.Bar::", "- addresses: ['10.0.0.1:20881']\n  side: provider\n  parameters: {weight: '6'}")}, "", ""},
		{"service, one consumer", []string{item("service com.foo.Bar::", "- addresses: [10.9.9.9]\n  side: consumer\n  parameters: {retries: 5}")}, "retries=5", "retries=5"},
		{"service, one consumer and another provider", []string{item("service com.foo.Bar::",
			"- addresses: [10.9.9.9]\n  providerAddresses: ['10.0.0.2:20880']\n  side: consumer\n  parameters: {retries: 5}")}, "", ""},
		{"service, applications", []string{item("service com.foo.Bar::", "- side: consumer\n  applications: [other, shop]\n  parameters: {retries: 5}")}, "retries=5", "retries=5"},
		{"service, other applications", []string{item("service com.foo.Bar::", "- side: consumer\n  applications: [other]\n  parameters: {retries: 5}")}, "", ""},
		{"application, consumers", []string{item("application shop", "- side: consumer\n  services: ['*']\n  parameters: {cluster: failfast}")}, "cluster=failfast", "cluster=failfast"},
		{"application, providers", []string{item("application stock", "- side: provider\n  parameters: {weight: 5}")}, "weight=5", ""},
		{"application, other side", []string{item("application stock", "- side: consumer\n  parameters: {weight: 5}")}, "", ""},
		{"application, other service", []string{item("application shop", "- side: consumer\n  services: [com.foo.Baz]\n  parameters: {retries: 5}")}, "", ""},
		{"service takes precedence over application", []string{
			item("service com.foo.Bar::", "- side: consumer\n  parameters: {retries: 1}"), item("application shop", "- side: consumer\n  parameters: {retries: 2}"),
		}, "retries=1", "retries=1"},
		{"disabled document", []string{"service com.foo.Bar::\nenabled: false\nconfigs: [{side: consumer, parameters: {retries: 1}}]"}, "", ""},
		{"any host and port", []string{item("service com.foo.Bar::", "- side: provider\n  providerAddresses: ['0.0.0.0:*']\n  parameters: {weight: 5}")}, "weight=5", ""},
		{"weight item, disabled by default", []string{item("application stock", "- {type: weight, side: provider, parameters: {weight: 5}}")}, "", ""},
		{"weight item, enabled", []string{item("application stock", "- {type: weight, enabled: true, side: provider, parameters: {weight: 5}}")}, "weight=5", ""},
		{"weight item, disabled", []string{item("application stock", "- {type: weight, enabled: false, side: provider, parameters: {weight: 5}}")}, "", ""},

		{"v3.0, parameter", []string{item("application stock", "- side: provider\n  match: {param: [{key: application, value: {exact: stock}}]}\n  parameters: {weight: 5}")}, "weight=5", ""},
		{"v3.0, other value", []string{item("application stock", "- side: provider\n  match: {param: [{key: timeout, value: {prefix: '4'}}]}\n  parameters: {weight: 5}")}, "", ""},
		{"v3.0, address", []string{item("service com.foo.Bar::", "- side: provider\n  match: {address: {wildcard: '10.0.0.*'}}\n  parameters: {weight: 5}")}, "weight=5", ""},
		{"v3.0, other network", []string{item("service com.foo.Bar::", "- side: provider\n  match: {address: {cidr: 10.1.0.0/16}}\n  parameters: {weight: 5}")}, "", ""},
		{"v3.0, network with Dubbo's spelling", []string{item("service com.foo.Bar::", "- side: provider\n  match: {address: {cird: 10.0.0.0/16}}\n  parameters: {weight: 5}")}, "weight=5", ""},
		{"v3.0, services and applications", []string{item("application shop",
			"- side: consumer\n  match: {service: {oneof: [{exact: x}, {regex: 'com.foo.*'}]}, app: {oneof: [{exact: shop}]}}\n  parameters: {retries: 5}")}, "retries=5", "retries=5"},
		{"v3.0, other services", []string{item("application shop",
			"- side: consumer\n  match: {service: {oneof: [{exact: x}]}}\n  parameters: {retries: 5}")}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var urls []registry.URL
			for _, text := range tt.rules {
				urls = append(urls, read(t, "override", text))
			}
			warn := func(text string) {
				if !strings.Contains(tt.name, "protected") {
					t.Error(text)
				}
			}
			previous, input := parse(t, provider), map[string]string{"timeout": "100"}
			changed, parameters := rules.ReadConfigurators(urls, warn).Apply(previous, consumer(), input)
			if got := changes(previous.Parameters.Map(), changed.Parameters.Map()); got != tt.want {
				t.Errorf("changed parameters of the provider: %q, want %q", got, tt.want)
			}
			if got := changes(map[string]string{"timeout": "100"}, parameters); got != tt.wantCall {
				t.Errorf("changed parameters of the consumer: %q, want %q", got, tt.wantCall)
			}
			if len(input) != 1 || input["timeout"] != "100" {
				t.Errorf("the input was changed: %v, want timeout=100", input)
			}
		})
	}
}

// changes returns the differences in after, as "key=value".
func changes(before, after map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if before[key] != after[key] {
			list = append(list, fmt.Sprintf("%s=%s", key, after[key]))
		}
	}
	return strings.Join(list, " ")
}

func TestInvalidOverridesAreReported(t *testing.T) {
	tests := []struct{ name, rule, want string }{
		{"unknown protocol", "script://0.0.0.0/com.foo.Bar?x=y", "unknown rule type"},
		{"invalid YAML", "service com.foo.Bar::\n{configs: [", "cannot parse the document"},
		{"not an object", "service com.foo.Bar::\n- 1", "not an object"},
		{"no side", "service com.foo.Bar::\nconfigs: [{parameters: {retries: 1}}]", "side must be consumer or provider"},
		{"no parameters", "service com.foo.Bar::\nconfigs: [{side: consumer}]", "no parameters"},
		{"invalid address", "service com.foo.Bar::\nconfigs: [{side: consumer, addresses: ['a:b'], parameters: {retries: 1}}]", "not a valid port"},
		{"unknown condition", "service com.foo.Bar::\nconfigs: [{side: consumer, match: {moon: {exact: full}}, parameters: {retries: 1}}]", "unknown match moon"},
		{"unknown comparison", "service com.foo.Bar::\nconfigs: [{side: consumer, match: {app: {like: x}}, parameters: {retries: 1}}]", "unknown match like"},
		{"invalid expression", "service com.foo.Bar::\nconfigs: [{side: consumer, match: {app: {regex: '('}}, parameters: {retries: 1}}]", "missing closing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			warning := ""
			configurators := rules.ReadConfigurators([]registry.URL{read(t, "override", tt.rule)}, func(text string) { warning += text })
			if len(configurators) != 0 || !strings.Contains(warning, tt.want) {
				t.Errorf("%d rules, warning = %q; want no rules, and a warning with %q", len(configurators), warning, tt.want)
			}
		})
	}
}

func FuzzOverrides(f *testing.F) {
	f.Add("override://0.0.0.0/com.foo.Bar?weight=1&~a=b", "configs: [{side: consumer, addresses: ['0.0.0.0'], parameters: {a: b}}]")
	f.Fuzz(func(t *testing.T, text, yaml string) {
		u, err := registry.Parse(text)
		if err != nil {
			t.Skip()
		}
		provider := parse(t, "dubbo://10.0.0.1:20880/com.foo.Bar?application=stock&interface=com.foo.Bar&group=g")
		changed, _ := rules.ReadConfigurators([]registry.URL{u, document("override", "application", "stock", yaml)}, func(string) {}).Apply(provider, consumer(), nil)
		if changed.Service() != provider.Service() || changed.Address() != provider.Address() {
			t.Errorf("Apply changed the service or the address: %s", changed)
		}
	})
}
