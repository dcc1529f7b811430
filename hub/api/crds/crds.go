// Package crds holds the CustomResourceDefinitions of Cluster API and of Drover, generated from their Go types, and installs them. It
// must not know what the kinds mean.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/provider"
)

//go:embed capi/*.yaml
var capiFiles embed.FS

//go:embed drover/*.yaml
var droverFiles embed.FS

// Options say which definitions are installed.
type Options struct {
	// SkipCAPI leaves Cluster API's own kinds to another installation of it.
	SkipCAPI bool
	// Providers are those whose kinds are wanted; empty for all.
	Providers provider.Set
	// Conversion says how the API server reaches the webhook that converts between versions of Cluster API's kinds. The path is added
	// to it. nil keeps the reference to a Service as upstream's own packages have it.
	Conversion *apiextensionsv1.WebhookClientConfig
	// Version is that of the hub. Definitions that a hub of a newer version has applied are kept. A version that is not one of a release,
	// nor of a build after one, replaces all.
	Version string
	// Logger is for Install; nil for no messages.
	Logger *slog.Logger
}

// Definitions returns what Install would apply.
func Definitions(opts Options) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	if !opts.SkipCAPI {
		capi, err := CAPIDefinitions(opts.Conversion)
		if err != nil {
			return nil, err
		}
		all = capi
	}
	drover, err := read(droverFiles)
	if err != nil {
		return nil, err
	}
	for _, crd := range drover {
		tolerate(crd)
	}
	wanted := map[string]bool{}
	for _, name := range opts.Providers.Names() {
		wanted[provider.Provider(name).Value()] = true
	}
	for _, crd := range drover {
		if wanted[crd.Labels[provider.Label]] {
			all = append(all, crd)
		}
	}
	return all, nil
}

// CAPIDefinitions returns the definitions of Cluster API's kinds alone. conversion is that of Options.
func CAPIDefinitions(conversion *apiextensionsv1.WebhookClientConfig) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := read(capiFiles)
	if err != nil || conversion == nil {
		return capi, err
	}
	for _, crd := range capi {
		setConversion(crd, conversion)
	}
	return capi, nil
}

func read(files embed.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			return fmt.Errorf("decoding %s: %w", path, err)
		}
		for i := range crd.Spec.Versions {
			if validation := crd.Spec.Versions[i].Schema; validation != nil && validation.OpenAPIV3Schema != nil {
				restrict(validation.OpenAPIV3Schema)
			}
		}
		out = append(out, crd)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading definitions: %w", err)
	}
	return out, nil
}

func setConversion(crd *apiextensionsv1.CustomResourceDefinition, to *apiextensionsv1.WebhookClientConfig) {
	const path = "/convert"
	target := to.DeepCopy()
	if target.URL != nil {
		url := strings.TrimSuffix(*target.URL, "/") + path
		target.URL = &url
	}
	if target.Service != nil {
		servicePath := path
		target.Service.Path = &servicePath
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             target,
		},
	}
}
