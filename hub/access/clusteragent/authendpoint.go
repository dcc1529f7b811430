package clusteragent

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	keysMount = "/etc/kube-api-auth"
	keysFile  = "keys.json"
	// AuthEndpointPort is the TCP port at which the API server of the same machine asks; plans write it into its configuration.
	AuthEndpointPort = 6440
)

// authEndpoint is a webhook beside every API server. It has the hub's public keys and nothing else: no access to the API, and no need of
// the hub.
func authEndpoint(in Input) []runtime.Object {
	if in.AuthEndpoint == nil {
		return nil
	}
	selector := map[string]string{"app": AuthEndpointName}
	object := metav1.ObjectMeta{Namespace: Namespace, Name: AuthEndpointName, Labels: selector}
	return []runtime.Object{
		&corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: object,
			Data: map[string]string{keysFile: string(in.AuthEndpoint.PublicKeys)},
		},
		&appsv1.DaemonSet{
			TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"}, ObjectMeta: object,
			Spec: appsv1.DaemonSetSpec{
				Selector:             &metav1.LabelSelector{MatchLabels: selector},
				RevisionHistoryLimit: ptr.To[int32](2),
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: selector},
					Spec:       authEndpointPod(in),
				},
			},
		},
	}
}

func authEndpointPod(in Input) corev1.PodSpec {
	args := []string{
		"cluster", "auth-webhook", "--cluster", in.Cluster, "--keys", keysMount + "/" + keysFile,
		"--listen", fmt.Sprintf("%s:%d", in.AuthEndpoint.Host, AuthEndpointPort),
	}
	if in.AllowMasters {
		args = append(args, "--allow-group", MastersGroup)
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		HostNetwork:                  true,
		ImagePullSecrets:             in.pullSecrets(),
		PriorityClassName:            in.priorityClassName(),
		NodeSelector:                 map[string]string{corev1.LabelOSStable: "linux"},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node-role.kubernetes.io/control-plane",
					Operator: corev1.NodeSelectorOpExists}},
			}}},
		}},
		Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: podSecurity(),
		Containers: []corev1.Container{{
			Name:            AuthEndpointName,
			Image:           in.Image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            args,
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Host: strings.Trim(in.AuthEndpoint.Host, "[]"), Path: "/healthz", Port: intstr.FromInt32(AuthEndpointPort),
				}},
				PeriodSeconds: 10, TimeoutSeconds: 5,
			},
			Resources:       in.resources(),
			SecurityContext: containerSecurity(),
			VolumeMounts:    []corev1.VolumeMount{{Name: "keys", MountPath: keysMount, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: AuthEndpointName}},
		}}},
	}
}
