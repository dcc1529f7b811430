package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestClusterObjects: a Cluster becomes what the other controllers and a user need.
func TestClusterObjects(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	cluster := newCluster(namespace, "graph")
	cluster.Spec.RKEConfig.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"disable": []any{"traefik"}}}
	cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}}
	env.create(t, cluster)

	message := condition(t, env, cluster, "Ready", metav1.ConditionUnknown, "WaitingForMachines")
	if !strings.HasPrefix(message, "Waiting for ") {
		t.Errorf("Ready says %q", message)
	}
	condition(t, env, cluster, "Created", metav1.ConditionTrue, "")
	condition(t, env, cluster, "RKECluster", metav1.ConditionTrue, "")
	management := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if !strings.HasPrefix(management, "c-m-") || cluster.Status.ClusterName != management {
		t.Errorf("the management Cluster is %q in the annotation and %q in the status", management, cluster.Status.ClusterName)
	}
	if cluster.Status.ObservedGeneration != cluster.Generation || cluster.Status.FleetWorkspaceName != namespace {
		t.Errorf("status is %+v", cluster.Status)
	}

	owner := &managementv3.Cluster{}
	env.get(t, "", management, owner)
	condition(t, env, owner, "Ready", metav1.ConditionUnknown, "WaitingForMachines")
	if owner.Spec.DisplayName != "graph" || owner.Status.Provider != "k3s" {
		t.Errorf("the management Cluster has display name %q and provider %q", owner.Spec.DisplayName, owner.Status.Provider)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: managementv3.DefaultTokenName}}
	condition(t, env, crt, "Ready", metav1.ConditionTrue, "")
	token := &corev1.Secret{}
	env.get(t, management, crt.Status.TokenSecretName, token)
	if len(token.Data[managementv3.TokenIDKey]) != 10 || len(token.Data[managementv3.TokenHashKey]) != 64 ||
		token.Labels[managementv3.RegistrationTokenLabel] != "true" {
		t.Errorf("the token has the id %q, the Secret the labels %v", token.Data[managementv3.TokenIDKey], token.Labels)
	}
	if whole := token.Data[managementv3.TokenKey]; len(whole) > 0 {
		t.Error("the Secret holds the token itself")
	}
	for _, command := range []string{crt.Status.NodeCommand, crt.Status.InsecureNodeCommand, crt.Status.VerifiedNodeCommand} {
		for _, want := range []string{env.ServerURL + "/system-agent-install.sh", "{token}", "--ca-checksum ",
			"HTTPS_PROXY='http://proxy:3128'"} {
			if !strings.Contains(command, want) {
				t.Errorf("the command %q lacks %q", command, want)
			}
		}
	}

	capi, infra, controlPlane := &clusterv1.Cluster{}, &rkev1.RKECluster{}, &rkev1.RKEControlPlane{}
	until(t, "Cluster API to take the objects over", func() error {
		env.get(t, namespace, "graph", capi)
		env.get(t, namespace, "graph", infra)
		env.get(t, namespace, "graph", controlPlane)
		if capi.Status.Initialization.InfrastructureProvisioned == nil || !*capi.Status.Initialization.InfrastructureProvisioned {
			return fmt.Errorf("the infrastructure is not provisioned: %+v", capi.Status)
		}
		for _, object := range []client.Object{infra, controlPlane} {
			owned := false
			for _, ref := range object.GetOwnerReferences() {
				owned = owned || ref.UID == capi.UID
			}
			if !owned {
				return fmt.Errorf("%T is not owned by the Cluster API Cluster", object)
			}
		}
		return nil
	})
	if !metav1.IsControlledBy(capi, cluster) || !metav1.IsControlledBy(infra, cluster) || !metav1.IsControlledBy(controlPlane, cluster) {
		t.Error("the objects of Cluster API are not controlled by the Cluster")
	}
	if controlPlane.Spec.ManagementClusterName != management || controlPlane.Spec.KubernetesVersion != "v1.36.3+k3s1" {
		t.Errorf("the control plane has %+v", controlPlane.Spec)
	}
	condition(t, env, infra, "Ready", metav1.ConditionTrue, "")
	condition(t, env, infra, "Paused", metav1.ConditionFalse, "")

	// A change is handed on, and so is a removal.
	change(t, env, cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"tls-san": []any{"a"}}}
		c.Spec.AgentEnvVars = nil
	})
	until(t, "the change to be handed on", func() error {
		env.get(t, namespace, "graph", controlPlane)
		got := controlPlane.Spec
		if _, old := got.MachineGlobalConfig.Data["disable"]; old || len(got.AgentEnvVars) > 0 || got.MachineGlobalConfig.Data["tls-san"] == nil {
			return fmt.Errorf("the control plane has %+v", got)
		}
		return nil
	})
	// What is deleted by mistake comes back.
	if err := env.Client.Delete(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	until(t, "the token Secret to come back", func() error {
		return env.Client.Get(t.Context(), client.ObjectKeyFromObject(token), &corev1.Secret{})
	})
}

// TestClusterInvalidInput: what the API server cannot know is told by a condition that names the field, and is cured without touching the
// Cluster where the Cluster is not at fault.
func TestClusterInvalidInput(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)

	unknown := newCluster(namespace, "unknown")
	unknown.Spec.KubernetesVersion = "v2.0.0+k3s1"
	env.create(t, unknown)
	message := condition(t, env, unknown, "Ready", metav1.ConditionFalse, "UnknownVersion")
	if !strings.Contains(message, "spec.kubernetesVersion") || !strings.Contains(message, "v2.0.0+k3s1") {
		t.Errorf("Ready says %q", message)
	}
	change(t, env, unknown, func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = "v1.36.3+k3s1" })
	condition(t, env, unknown, "RKECluster", metav1.ConditionTrue, "")
	// In an existing cluster, an invalid version does not reach the control plane.
	change(t, env, unknown, func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = "v2.1.0+k3s1" })
	condition(t, env, unknown, "Updated", metav1.ConditionFalse, "UnknownVersion")
	controlPlane := &rkev1.RKEControlPlane{}
	env.get(t, namespace, "unknown", controlPlane)
	if controlPlane.Spec.KubernetesVersion != "v1.36.3+k3s1" {
		t.Errorf("the control plane was given the version %s", controlPlane.Spec.KubernetesVersion)
	}

	files := newCluster(namespace, "files")
	files.Spec.RKEConfig.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
		{Secret: &rkev1.K8sObjectFileSource{Name: "source", Items: []rkev1.KeyToPath{{Key: "k", Path: "/etc/k"}}}},
	}}}
	env.create(t, files)
	condition(t, env, files, "RKECluster", metav1.ConditionFalse, "FileSourceNotFound")
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "source"}, StringData: map[string]string{"k": "v"}}
	env.create(t, source)
	message = condition(t, env, files, "Ready", metav1.ConditionFalse, "FileSourceNotAuthorized")
	if !strings.Contains(message, "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name") {
		t.Errorf("Ready says %q", message)
	}
	change(t, env, source, func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, rkev1.AuthorizedObjectAnnotation, "files")
	})
	condition(t, env, files, "RKECluster", metav1.ConditionTrue, "")

	// The name of another cluster's namespace must not be taken over through the annotation.
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c-m-" + strings.Repeat("z", 8)}}
	env.create(t, other)
	thief := newCluster(namespace, "thief")
	thief.Annotations = map[string]string{rkev1.ManagementClusterNameAnnotation: other.Name}
	env.create(t, thief)
	condition(t, env, thief, "Created", metav1.ConditionFalse, "NameTaken")
	if err := env.Client.Delete(t.Context(), thief); err != nil {
		t.Fatal(err)
	}
	env.Gone(t, thief)
	env.get(t, "", other.Name, other)
	if !other.DeletionTimestamp.IsZero() {
		t.Error("a namespace of another owner was deleted")
	}
}

// TestClusterPaused: a paused Cluster is left alone and says so.
func TestClusterPaused(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	cluster := newCluster(namespace, "paused")
	cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	env.create(t, cluster)
	condition(t, env, cluster, clusterv1.PausedCondition, metav1.ConditionTrue, "")
	if cluster.Annotations[rkev1.ManagementClusterNameAnnotation] != "" || len(cluster.Finalizers) > 0 {
		t.Error("a paused Cluster was worked on")
	}
	change(t, env, cluster, func(c *provisioningv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
	condition(t, env, cluster, clusterv1.PausedCondition, metav1.ConditionFalse, "")
	condition(t, env, cluster, "Created", metav1.ConditionTrue, "")
}
