package crds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
// nobody has changed since, is left alone: to apply it takes the API server as long as to change it.
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
	for _, crd := range wanted {
		group.Go(func() error {
			raw, err := encode(crd)
			if err != nil || installed(have[crd.Name], crd) {
				return err
			}
			if err := apply(ctx, client, crd.Name, raw); err != nil {
				return fmt.Errorf("installing %s: %w", crd.Name, err)
			}
			return waitEstablished(ctx, client, crd.Name)
		})
	}
	return group.Wait()
}

// encode gives a definition the annotation with its hash, and returns it as JSON.
func encode(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	raw, err := json.Marshal(crd)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, hashAnnotation, hex.EncodeToString(sum[:]))
	return json.Marshal(crd)
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
