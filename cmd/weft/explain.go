package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/explain"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	adminClient
	source

	method, call, protocol, group, version string
	listener, to, from, serverName, alpn   string
	headers, attachments                   []string
}

func explainCommand() *cobra.Command {
	f := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain [URL | --dubbo SERVICE/METHOD] [-c FILE]",
		Short: "Show which route and hosts a request would take, and why",
		Long: "Explain shows which listener, filter chain, virtual host, route, cluster and hosts a\n" +
			"request would take, and why the others do not match. It queries the admin port of a\n" +
			"running Weft, or reads a file with -c and assumes that all hosts are up. It sends no\n" +
			"request and runs no filters. The exit status is 1 if the request reaches no route: the line\n" +
			"\"result\" has the reason.\n\n" +
			"The listener is the one that --listener names. Otherwise it is the one that accepts connections\n" +
			"to the address of --to or of the URL, or else the only one that speaks the protocol.",
		Example: "  weft explain http://shop.example/cart --listener egress\n" +
			"  weft explain -X POST -H 'end-user: jason' http://reviews:9080/reviews/0\n" +
			"  weft explain --dubbo com.example.Catalog/find --group grey -c config.json\n" +
			"  weft explain https://shop.example/ --from 10.1.2.3 -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.adminClient.flags(flags)
	flags.StringVarP(&f.path, "config", "c", "", "configuration `FILE` to read instead of querying a running Weft")
	flags.StringVarP(&f.method, "request", "X", "", "`METHOD` of an HTTP request (default GET)")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "`NAME:VALUE` of a header; repeatable")
	flags.StringVar(&f.call, "dubbo", "", "`SERVICE/METHOD` of a call, instead of a URL")
	flags.StringVar(&f.protocol, "protocol", "", "`PROTOCOL` of the call (default dubbo)")
	flags.StringVar(&f.group, "group", "", "`GROUP` of the called service")
	flags.StringVar(&f.version, "version", "", "`VERSION` of the called service")
	flags.StringArrayVar(&f.attachments, "attachment", nil, "`NAME=VALUE` of an attachment of the call; repeatable")
	flags.StringVar(&f.listener, "listener", "", "`NAME` of the listener")
	flags.StringVar(&f.to, "to", "", "destination `IP:PORT` of the connection")
	flags.StringVar(&f.from, "from", "", "source `IP` or ip:port of the connection")
	flags.StringVar(&f.serverName, "sni", "", "server `NAME` in the TLS handshake (default: the host of the URL)")
	flags.StringVar(&f.alpn, "alpn", "", "comma-separated `PROTOCOLS` that the client offers (default: h2,http/1.1 with TLS)")
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	query := f.query(args)
	parsed, err := explain.Parse(query)
	if err != nil {
		return err
	}
	if f.path == "" {
		result := &explain.Result{}
		if err := f.get(cmd.Context(), "/explain", query, result); err != nil {
			return err
		}
		return f.printResult(cmd, result)
	}
	_, merged, diagnostics := f.openMerged()
	printDiagnostics(cmd.ErrOrStderr(), diagnostics)
	if merged == nil {
		return &exitError{status: 1}
	}
	return f.printResult(cmd, explain.Explain(merged, configuredUpstreams(merged), parsed))
}

// printResult prints a result. It returns an exit status of 1 if the evaluation ended before an
// action or a cluster.
func (f *explainFlags) printResult(cmd *cobra.Command, result *explain.Result) error {
	if err := f.print(cmd.OutOrStdout(), result); err != nil {
		return err
	}
	if result.EndReason != "" {
		return &exitError{status: 1}
	}
	return nil
}

// query returns the flags as the query of the admin port's /explain.
func (f *explainFlags) query(args []string) url.Values {
	v := url.Values{explain.KeyHeader: f.headers, explain.KeyAttachment: f.attachments}
	if len(args) > 0 {
		v.Set(explain.KeyURL, args[0])
	}
	for key, value := range map[string]string{
		explain.KeyMethod: f.method, explain.KeyCall: f.call, explain.KeyProtocol: f.protocol, explain.KeyGroup: f.group,
		explain.KeyVersion: f.version, explain.KeyListener: f.listener, explain.KeyDestination: f.to, explain.KeySource: f.from,
		explain.KeyServerName: f.serverName, explain.KeyALPN: f.alpn,
	} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

// configuredUpstreams returns the clusters of a configuration that is not running.
func configuredUpstreams(c *config.Snapshot) explain.Upstreams {
	return func(name string) *explain.Upstream {
		for _, cluster := range c.Clusters {
			if cluster.Name == name {
				return explain.FromConfig(cluster)
			}
		}
		return nil
	}
}
