package clusteragent

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	// user is who the containers run as; the image has no other files than those everybody may read.
	user = 65532
	// healthPort is the TCP port of the agent's health checks and metrics.
	healthPort = 9440
)

// deployment is the agent. A new one is ready before an old one goes, so that the cluster stays connected while it is changed.
func deployment(in Input) runtime.Object {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: inNamespace(Deployment),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(in.Replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels()},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
			}},
			RevisionHistoryLimit: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels()},
				Spec:       pod(in),
			},
		},
	}
}

func pod(in Input) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: ServiceAccount,
		ImagePullSecrets:   in.pullSecrets(),
		PriorityClassName:  in.priorityClassName(),
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Affinity:           in.affinity(),
		Tolerations:        in.tolerations(),
		SecurityContext:    podSecurity(),
		Containers:         []corev1.Container{container(in)},
		Volumes: []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: in.credentialName(), DefaultMode: ptr.To[int32](0o440)},
		}}},
	}
}

func container(in Input) corev1.Container {
	args := []string{"cluster"}
	if in.AllowMasters {
		args = append(args, "--allow-group", MastersGroup)
	}
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}},
			PeriodSeconds: 10, TimeoutSeconds: 5,
		}
	}
	return corev1.Container{
		Name:            "cluster-agent",
		Image:           in.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            args,
		Env:             in.env(),
		Ports:           []corev1.ContainerPort{{Name: "health", ContainerPort: healthPort}},
		LivenessProbe:   probe("/healthz"),
		ReadinessProbe:  probe("/readyz"),
		Resources:       in.resources(),
		SecurityContext: containerSecurity(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "credentials", MountPath: credentialMount, ReadOnly: true}},
	}
}

func (in Input) env() []corev1.EnvVar {
	out := []corev1.EnvVar{
		{Name: envServer, Value: in.ServerURL},
		{Name: envCAChecksum, Value: in.caChecksum()},
		{Name: envCluster, Value: in.Cluster},
		{Name: envCredentialName, Value: in.credentialName()},
	}
	for _, v := range in.Env {
		if ValidName(v.Name) && !Reserved(v.Name) {
			// Kubernetes would put another variable in place of $(NAME), which nobody does for the other uses of these variables.
			out = append(out, corev1.EnvVar{Name: v.Name, Value: strings.ReplaceAll(v.Value, "$(", "$$(")})
		}
	}
	return out
}

// resources bound nothing: what users transfer through the agent has its own bounds there, and an agent that is killed cuts them all off.
func (in Input) resources() corev1.ResourceRequirements {
	if own := in.customization().OverrideResourceRequirements; own != nil && ResourcesFault(*own) == "" {
		return *own
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}}
}

// podSecurity and containerSecurity are what the restricted standard for Pods asks for.
func podSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), FSGroup: ptr.To[int64](user),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
