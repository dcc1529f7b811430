package embedded

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericregistry "k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-aggregator/pkg/apiserver"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generic "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
)

// serverChain assembles the servers as upstream's sample of a control plane does: definitions, the kinds of a control plane without Pods
// and nodes, aggregated APIs. With jobs, the kinds of batch/v1 are served, too.
func serverChain(config generic.CompletedConfig, jobs bool) (*apiserver.APIAggregator, error) {
	notFound := notfoundhandler.New(config.ControlPlane.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	definitions, err := config.APIExtensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("making the server of definitions: %w", err)
	}
	definitions.Informers = withoutResync{definitions.Informers}
	native, err := config.ControlPlane.New("generic-controlplane", definitions.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("making the server of the native kinds: %w", err)
	}
	client, err := kubernetes.NewForConfig(config.ControlPlane.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	providers, err := config.ControlPlane.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("making the storage of the native kinds: %w", err)
	}
	priorities := controlplane.DefaultGenericAPIServicePriorities()
	if jobs {
		providers = append(providers, batch{})
		priorities[batchv1.SchemeGroupVersion] = controlplane.APIServicePriority{Group: 17400, Version: 15}
	}
	if err := native.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("installing the native kinds: %w", err)
	}
	return controlplane.CreateAggregatorServer(config.Aggregator, native.GenericAPIServer,
		definitions.Informers.Apiextensions().V1().CustomResourceDefinitions(), true, priorities)
}

// batch enables batch/v1, which a control plane without Pods does not.
type batch struct{ batchrest.RESTStorageProvider }

func (b batch) NewRESTStorage(_ serverstorage.APIResourceConfigSource, getter genericregistry.RESTOptionsGetter,
) (genericapiserver.APIGroupInfo, error) {
	enabled := serverstorage.NewResourceConfig()
	enabled.EnableVersions(batchv1.SchemeGroupVersion)
	return b.RESTStorageProvider.NewRESTStorage(enabled, getter)
}
