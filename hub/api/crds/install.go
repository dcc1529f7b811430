package crds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	fieldOwner         = "drover-crds"
	establishedTimeout = time.Minute
	// hashAnnotation is the SHA-256 of the definition that was applied, in hexadecimal.
	hashAnnotation = "rke.cattle.io/definition-hash"
	// appliers is how many definitions are applied at the same time.
	appliers = 4
)

// Install applies the definitions and returns when the API server serves all of them. One that is there as it was applied last, which
// nobody has changed since, is left alone: to apply it takes the API server as long as to change it. So is that of a newer hub.
func Install(ctx context.Context, config *rest.Config, opts Options) error {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clients, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making client for definitions: %w", err)
	}
	client := clients.CustomResourceDefinitions()
	wanted, err := Definitions(opts)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading definitions: %w", err)
	}
	have := make(map[string]*apiextensionsv1.CustomResourceDefinition, len(list.Items))
	for i := range list.Items {
		have[list.Items[i].Name] = &list.Items[i]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(appliers)
	var keptAll atomic.Int32
	for _, crd := range wanted {
		group.Go(func() error {
			kept, err := install(ctx, client, have[crd.Name], crd, opts.Version)
			if kept {
				keptAll.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	if n := keptAll.Load(); n > 0 && opts.Logger != nil {
		opts.Logger.Info("Kept definitions that a newer hub has applied", "definitions", n, "annotation", versionAnnotation)
	}
	return err
}

// install has the API server serve a definition, and reports whether that of a newer hub was kept. have is what is there, nil for nothing,
// own the version of this hub.
func install(
	ctx context.Context, client apiextensions.CustomResourceDefinitionInterface,
	have, want *apiextensionsv1.CustomResourceDefinition, own string,
) (kept bool, err error) {
	if err := setHash(want); err != nil || installed(have, want) {
		return false, err
	}
	if newer(have, own) {
		return true, keep(ctx, client, have, want)
	}
	if released(own) != nil {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, versionAnnotation, own)
	}
	raw, err := json.Marshal(want)
	if err != nil {
		return false, fmt.Errorf("encoding %s: %w", want.Name, err)
	}
	if err := apply(ctx, client, want.Name, raw); err != nil {
		return false, fmt.Errorf("installing %s: %w", want.Name, err)
	}
	return false, waitEstablished(ctx, client, want.Name)
}

// setHash gives a definition the annotation with its hash.
func setHash(crd *apiextensionsv1.CustomResourceDefinition) error {
	raw, err := json.Marshal(crd)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", crd.Name, err)
	}
	sum := sha256.Sum256(raw)
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, hashAnnotation, hex.EncodeToString(sum[:]))
	return nil
}

// installed reports whether a definition is served, was applied last as it is wanted, and still has all of that.
func installed(have, want *apiextensionsv1.CustomResourceDefinition) bool {
	return have != nil && whyNotEstablished(have) == "" &&
		equality.Semantic.DeepDerivative(want.Labels, have.Labels) && equality.Semantic.DeepDerivative(want.Annotations, have.Annotations) &&
		equality.Semantic.DeepDerivative(want.Spec, have.Spec)
}

func apply(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, name string, raw []byte) error {
	force := true
	_, err := client.Patch(ctx, name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: fieldOwner, Force: &force})
	return err
}

// waitEstablished returns when a definition is served, or says why it is not.
func waitEstablished(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishedTimeout)
	defer cancel()
	for {
		crd, err := client.Get(ctx, name, metav1.GetOptions{})
		var reason string
		if err == nil {
			if reason = whyNotEstablished(crd); reason == "" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if err != nil {
				reason = err.Error()
			}
			return fmt.Errorf("waiting for %s to be served: %w (%s)", name, ctx.Err(), reason)
		case <-time.After(50 * time.Millisecond):
		}
	}
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
