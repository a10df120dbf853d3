package xds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// parseFile parses a file with resources, in JSON or YAML. root is the document. The diagnostics
// have the positions of errors.
func parseFile(path string, text []byte) (message *discoveryv3.DiscoveryResponse, root document.Node, diagnostics document.Diagnostics) {
	report := &document.Report{}
	root = document.Parse(path, text, document.Options{Env: os.LookupEnv}, report)
	if diagnostics := report.Diagnostics(); diagnostics.Failed() || !root.Exists() {
		return nil, root, diagnostics
	}
	data, err := json.Marshal(root.Value())
	if err == nil {
		message, err = bootstrap.ReadResponse(data)
	}
	return message, root, fileDiagnostics(path, root, "", err)
}

// fileDiagnostics returns err as errors at the positions of their fields. The fields are below
// prefix in the document.
func fileDiagnostics(path string, root document.Node, prefix string, err error) (out document.Diagnostics) {
	for _, e := range bootstrap.FieldErrorsOf(prefix, err) {
		position := document.At(root, e.Field).Position()
		out = append(out, document.Diagnostic{
			Severity: document.Error, File: path, Line: position.Line, Column: position.Column, Path: e.Field, Problem: e.Reason,
		})
	}
	return out
}

// CheckFiles checks the files from which a bootstrap reads clusters and listeners, each resource
// without the resources that it refers to. It returns the files that it cannot read, with the
// fields of the bootstrap, and the errors in the others. If the bootstrap is not valid, CheckFiles
// checks nothing.
func CheckFiles(b config.Bootstrap, capabilities resource.Capabilities) (unreadable bootstrap.FieldErrors, out document.Diagnostics) {
	if !bytes.Contains(b.DynamicResources, []byte(`"path`)) {
		return nil, nil
	}
	boot, _, err := bootstrap.Read(b, capabilities)
	if err != nil {
		return nil, nil
	}
	capabilities.Node, capabilities.Runtime = resource.NodeOf(boot.Node), bootstrap.MergeLayers(boot.Layers)
	for i := range boot.Sources {
		source := &boot.Sources[i]
		if source.Path == "" {
			continue
		}
		text, err := os.ReadFile(source.Path)
		if err != nil {
			unreadable = append(unreadable, bootstrap.FieldError{Field: source.Field, Reason: fmt.Sprintf("cannot read resources: %v", err)})
			continue
		}
		out = append(out, checkFile(source, text, capabilities)...)
	}
	return unreadable, out
}

// checkFile returns the errors in the text of a file with resources of one type.
func checkFile(source *bootstrap.TypeSource, text []byte, capabilities resource.Capabilities) document.Diagnostics {
	message, root, out := parseFile(source.Path, text)
	if message == nil {
		return out
	}
	message.TypeUrl = source.Type
	for i, r := range responseOf(message, resource.Name).Resources {
		prefix := fmt.Sprintf("resources[%d]", i)
		var err error
		switch {
		case r.DecodeError != "":
			err = bootstrap.FieldErrors{{Field: prefix, Reason: r.DecodeError}}
		case source.Type == resource.ListenerType:
			_, err = resource.ReadListener(r.Body, capabilities)
		default:
			_, err = resource.ReadCluster(r.Body, capabilities)
		}
		out = append(out, fileDiagnostics(source.Path, root, prefix, err)...)
	}
	return out
}
