package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

const (
	infrastructureGroup   = "infrastructure.cluster.x-k8s.io"
	infrastructureVersion = "v1beta2"

	namespace = "fleet-default"
	version   = "v1.36.3+k3s1"
	// nextVersion is what machines are upgraded to, upgradeConcurrency how many of the workers at a time.
	nextVersion        = "v1.36.3+k3s2"
	upgradeConcurrency = "10%"
)

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme, managementv3.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// infrastructureCluster is a cluster of the Dev provider with its backend in memory.
func infrastructureCluster(name string) *unstructured.Unstructured {
	return infrastructure("DevCluster", name, map[string]any{"backend": map[string]any{"inMemory": map[string]any{}}})
}

// machineTemplate is of machines in the memory of the Dev provider that take a time to boot.
func machineTemplate(boot time.Duration) *unstructured.Unstructured {
	backend := map[string]any{}
	if boot > 0 {
		backend["vm"] = map[string]any{"provisioning": map[string]any{
			"startupDuration": boot.String(), "startupJitter": fmt.Sprint(bootJitter),
		}}
	}
	spec := map[string]any{"backend": map[string]any{"inMemory": backend}}
	return infrastructure("DevMachineTemplate", "workers", map[string]any{"template": map[string]any{"spec": spec}})
}

func infrastructure(kind, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: infrastructureGroup, Version: infrastructureVersion, Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	// The provider of v1.14 panics when it annotates an object without annotations.
	u.SetAnnotations(map[string]string{"scale.test/annotated": ""})
	return u
}

func reference(kind, name string) *provisioningv1.ObjectReference {
	return &provisioningv1.ObjectReference{APIVersion: infrastructureGroup + "/" + infrastructureVersion, Kind: kind, Name: name}
}

// pools are the sizes of the pools that workers are spread over, none of them larger than most.
func pools(workers, most int) []int32 {
	var sizes []int32
	for first := 0; first < workers; first += most {
		sizes = append(sizes, int32(min(most, workers-first)))
	}
	return sizes
}

// newCluster is a Cluster with pools of workers.
func newCluster(name string, pools []int32) *provisioningv1.Cluster {
	cluster := &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: provisioningv1.ClusterSpec{KubernetesVersion: version, RKEConfig: &provisioningv1.RKEConfig{
			ClusterConfiguration: rkev1.ClusterConfiguration{
				UpgradeStrategy: rkev1.ClusterUpgradeStrategy{WorkerConcurrency: upgradeConcurrency},
			},
			InfrastructureRef: reference("DevCluster", name),
		}},
	}
	for i, quantity := range pools {
		cluster.Spec.RKEConfig.MachinePools = append(cluster.Spec.RKEConfig.MachinePools, provisioningv1.RKEMachinePool{
			Name: fmt.Sprintf("workers-%d", i), WorkerRole: true, Quantity: &quantity, MachineConfigRef: reference("DevMachineTemplate", "workers"),
		})
	}
	return cluster
}

// createRegistrationToken creates a token with which the server registers.
func createRegistrationToken(ctx context.Context, c client.Client, management string) (string, error) {
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		return "", err
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "scale"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = management, managementv3.MachinesPurpose
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	if err := c.Create(ctx, crt); err != nil {
		return "", fmt.Errorf("creating the registration token: %w", err)
	}
	secret := client.ObjectKey{Namespace: management, Name: managementv3.TokenSecretPrefix + crt.Name}
	return token, poll(ctx, "the registration token to be known", func() error { return c.Get(ctx, secret, &corev1.Secret{}) })
}

// poll asks again until check returns nil.
func poll(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w)", what, context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
