package staticpod

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels and the annotation by which the sandbox of a static pod of the control plane is known.
const (
	componentLabel   = "component"
	tierLabel        = "tier"
	tier             = "control-plane"
	namespaceLabel   = "io.kubernetes.pod.namespace"
	uidLabel         = "io.kubernetes.pod.uid"
	sourceAnnotation = "kubernetes.io/config.source"
)

const (
	// runtimeTimeout is how long a container runtime that has just been started may take to answer.
	runtimeTimeout = time.Minute
	// stopSeconds is how long a container may take to end.
	stopSeconds = 10
)

// Reconcile ends the pods of components that are not those of the manifests in the folder. No kubelet may run: one that has just been
// started does not end such pods as long as it has not asked the Kubernetes API for its other pods, and starts no other in the place of
// them.
func Reconcile(ctx context.Context, socket string, folder Folder, components []string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	for deadline := time.Now().Add(runtimeTimeout); ; {
		err := reconcile(ctx, client, folder, components)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func reconcile(ctx context.Context, client cri.RuntimeServiceClient, folder Folder, components []string) error {
	labels := map[string]string{tierLabel: tier, namespaceLabel: metav1.NamespaceSystem}
	list, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return fmt.Errorf("listing static pods: %w", err)
	}
	for _, sandbox := range list.Items {
		component := sandbox.Labels[componentLabel]
		if sandbox.Annotations[sourceAnnotation] != "file" || !slices.Contains(components, component) {
			continue
		}
		if uid, _ := folder.Metadata(component); uid != "" && uid == sandbox.Labels[uidLabel] {
			continue
		}
		if err := end(ctx, client, sandbox.Id); err != nil {
			return fmt.Errorf("ending the pod of %s: %w", component, err)
		}
	}
	return nil
}

func end(ctx context.Context, client cri.RuntimeServiceClient, sandbox string) error {
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return err
	}
	for _, c := range list.Containers {
		if _, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id, Timeout: stopSeconds}); err != nil {
			return err
		}
	}
	if _, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	_, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
}
