// Package crds holds the CustomResourceDefinitions of Cluster API and of Drover, generated from their Go types, and installs them. It
// must not know what the kinds mean.
package crds

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/provider"
)

//go:embed capi/*.yaml
var capiFiles embed.FS

//go:embed drover/*.yaml
var droverFiles embed.FS

const (
	fieldOwner         = "drover-crds"
	establishedTimeout = time.Minute
)

// Options say which definitions are installed.
type Options struct {
	// SkipCAPI leaves Cluster API's own kinds to another installation of it.
	SkipCAPI bool
	// Providers are those whose kinds are wanted; empty for all.
	Providers provider.Set
	// Conversion says how the API server reaches the webhook that converts between versions of Cluster API's kinds. The path is added
	// to it. nil keeps the reference to a Service as upstream's own packages have it.
	Conversion *apiextensionsv1.WebhookClientConfig
}

// Install applies the definitions and returns when the API server serves all of them. Applying what is already there changes nothing,
// not even the resource version.
func Install(ctx context.Context, config *rest.Config, opts Options) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making client for definitions: %w", err)
	}
	wanted, err := Definitions(opts)
	if err != nil {
		return err
	}
	names := make(map[string]bool, len(wanted))
	for _, crd := range wanted {
		if err := apply(ctx, client.CustomResourceDefinitions(), crd); err != nil {
			return fmt.Errorf("installing %s: %w", crd.Name, err)
		}
		names[crd.Name] = true
	}
	return waitEstablished(ctx, client.CustomResourceDefinitions(), names)
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

func apply(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface,
	crd *apiextensionsv1.CustomResourceDefinition) error {
	raw, err := json.Marshal(crd)
	if err != nil {
		return err
	}
	force := true
	_, err = client.Patch(ctx, crd.Name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: fieldOwner, Force: &force})
	return err
}

// waitEstablished returns when every named definition is served, or says which are not and why.
func waitEstablished(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, names map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, establishedTimeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		missing, err := notEstablished(ctx, client, names)
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for definitions to be served: %s: %w", strings.Join(missing, ", "), errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func notEstablished(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, names map[string]bool) ([]string, error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var missing []string
	for i := range list.Items {
		crd := &list.Items[i]
		if !names[crd.Name] {
			continue
		}
		if reason := whyNotEstablished(crd); reason != "" {
			missing = append(missing, crd.Name+" ("+reason+")")
		}
	}
	return missing, nil
}

func whyNotEstablished(crd *apiextensionsv1.CustomResourceDefinition) string {
	reason := "not processed yet"
	for _, condition := range crd.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			return ""
		case condition.Status == apiextensionsv1.ConditionFalse && condition.Message != "":
			reason = condition.Message
		}
	}
	return reason
}
