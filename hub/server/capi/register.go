package capi

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:generate go tool controller-gen webhook paths=sigs.k8s.io/cluster-api/core/webhooks/admission/... output:webhook:dir=.

//go:embed manifests.yaml
var webhookManifests []byte

const (
	// RegistrationName is the name of the hub's webhook configurations; upstream's own have other names.
	RegistrationName = "drover-capi"
	fieldOwner       = client.FieldOwner("drover-capi")
)

// RegisterWebhooks tells the API server which requests it has to send to the webhooks, and where they are. The path is added to a URL
// or a Service. Registering what is registered already changes nothing. With the last of the owners, if there are any, the garbage
// collector deletes the registration: without a hub, the API server would refuse all writes of Cluster API's kinds.
func RegisterWebhooks(
	ctx context.Context, c client.Client, to admissionregistrationv1.WebhookClientConfig, owners ...metav1.OwnerReference,
) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(webhookManifests), 4096)
	for {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decoding webhook manifests: %w", err)
		}
		object, err := registration(raw.Raw, c.Scheme(), to)
		if err != nil {
			return err
		}
		if object == nil {
			continue
		}
		object.SetOwnerReferences(owners)
		//nolint:staticcheck // these kinds have no generated apply configuration here; a patch of type apply is the same request
		if err := c.Patch(ctx, object, client.Apply, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("registering webhooks: %w", err)
		}
	}
}

func registration(raw []byte, scheme *runtime.Scheme, to admissionregistrationv1.WebhookClientConfig) (client.Object, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDeserializer(), raw)
	if err != nil {
		return nil, fmt.Errorf("decoding webhook manifest: %w", err)
	}
	switch object := decoded.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		object.Name = RegistrationName
		for i := range object.Webhooks {
			redirect(&object.Webhooks[i].ClientConfig, to)
		}
		return object, nil
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		object.Name = RegistrationName
		for i := range object.Webhooks {
			redirect(&object.Webhooks[i].ClientConfig, to)
		}
		return object, nil
	default:
		return nil, fmt.Errorf("decoding webhook manifest: unexpected %T", decoded)
	}
}

// redirect keeps the path of a manifest's webhook and takes everything else from to.
func redirect(config *admissionregistrationv1.WebhookClientConfig, to admissionregistrationv1.WebhookClientConfig) {
	path := *config.Service.Path
	*config = *to.DeepCopy()
	if config.URL != nil {
		url := strings.TrimSuffix(*config.URL, "/") + path
		config.URL = &url
	}
	if config.Service != nil {
		config.Service.Path = &path
	}
}

// UnregisterWebhooks removes what a hub has registered that ran Cluster API before. Nobody would answer: the API server would refuse all
// writes of Cluster API's kinds, those of the other Cluster API, too.
func UnregisterWebhooks(ctx context.Context, c client.Client) error {
	for _, object := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		object.SetName(RegistrationName)
		if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the registration of the webhooks: %w", err)
		}
	}
	return nil
}

// ErrInstalled is returned by CheckNotInstalled.
var ErrInstalled = errors.New("another Cluster API is installed in this cluster")

// manager is the name of the Deployment of upstream's own manager. managerNamespaces are those in which it is installed: by clusterctl, by
// Rancher with Turtles, and by earlier versions of Rancher.
const manager = "capi-controller-manager"

var managerNamespaces = []string{"capi-system", "cattle-capi-system", "cattle-provisioning-capi-system"}

// CheckNotInstalled returns an error where upstream's own manager is deployed: two of them would work against each other. own is the hub's
// namespace, in which clusterctl upgrades what its inventory has there.
func CheckNotInstalled(ctx context.Context, c client.Reader, own string) error {
	for _, namespace := range append([]string{own}, managerNamespaces...) {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: manager}, &appsv1.Deployment{})
		switch {
		case err == nil:
			return fmt.Errorf("%w (Deployment %s/%s)", ErrInstalled, namespace, manager)
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err): // also where the API server knows no Deployments at all
		default:
			return fmt.Errorf("looking for another Cluster API: %w", err)
		}
	}
	return nil
}
