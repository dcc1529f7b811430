package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

// The labels of all objects of an operation. Those of Rancher's provisioning Jobs are the same, but for the namespace: their Jobs are in
// the namespace of the machine.
const (
	componentLabel = "app.kubernetes.io/component"
	component      = "node-driver"
	uidLabel       = "rke.cattle.io/infra-machine-uid"
	removeLabel    = "rke.cattle.io/infra-remove"
	namespaceLabel = "rke.cattle.io/infra-machine-namespace"
)

const (
	// user is that of the hub's image, which has no rights.
	user     = 65532
	orderDir = "/run/drover/order"
	// The deadline of a Job is that of its operation and startTime, in which its Pod is scheduled and the image is pulled.
	startTime    = 5 * time.Minute
	flagsTimeout = 3 * time.Minute
)

// Options say how Jobs are made.
type Options struct {
	// Namespace is that of the hub.
	Namespace string
	// Image is the hub's own. PullSecrets are names of Secrets of the namespace with credentials for its registry.
	Image       string
	PullSecrets []string
	// ProgramDir is the directory of the image that has the programs of builtin drivers. Empty if it has none.
	ProgramDir string
	Scheduling Scheduling
	// Proxy are the proxy settings for the Jobs, by the name of the variable.
	Proxy map[string]string
}

// job is an operation with the names and labels of its objects.
type job struct {
	name    string
	labels  map[string]string
	timeout time.Duration
	order   *order
	// queued is that of the machine; nil for none.
	queued func(bool)
}

// flagsJob is one for each source of a driver, since a Job of another one must not be waited for.
func flagsJob(o *order) (job, error) {
	source, err := json.Marshal(o.Source)
	if err != nil {
		return job{}, fmt.Errorf("encoding the source of driver %s: %w", o.Driver, err)
	}
	sum := sha256.Sum256(source)
	return job{
		name: rkev1.SafeConcat("node-driver", o.Driver, hex.EncodeToString(sum[:5]), "flags"), timeout: flagsTimeout + startTime, order: o,
		labels: map[string]string{componentLabel: component},
	}, nil
}

// machineJobName is the same for all operations of a machine: there is one at a time. It has nothing of the machine that a user chooses, so
// that nobody can name a machine so that it has the Job of another one.
func machineJobName(id nodedriver.ID) string { return "machine-provision-" + string(id.UID) }

func machineJob(id nodedriver.ID, o *order) job {
	j := job{
		name: machineJobName(id), timeout: nodedriver.CreateTimeout + startTime, order: o,
		labels: map[string]string{
			componentLabel: component, uidLabel: string(id.UID), removeLabel: "false",
			"rke.cattle.io/infra-machine-group": id.Kind.Group, "rke.cattle.io/infra-machine-version": id.Kind.Version,
			"rke.cattle.io/infra-machine-kind": id.Kind.Kind, namespaceLabel: id.Namespace,
			"rke.cattle.io/infra-machine-name": rkev1.SafeConcat(id.Name),
		},
	}
	if id.Machine != "" {
		j.labels["rke.cattle.io/capi-machine-name"] = rkev1.SafeConcat(id.Machine)
	}
	if o.Operation == remove {
		j.labels[removeLabel], j.timeout = "true", nodedriver.RemoveTimeout+startTime
	}
	return j
}

func (j job) orderName() string { return j.name + "-order" }

func (j job) meta(o Options, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.Namespace, Name: name, Labels: j.labels}
}

// objects are those of an operation in the order in which they are created; the Job is the last one.
func (j job) objects(o Options) ([]client.Object, error) {
	with := *j.order
	with.Proxy = o.Proxy
	raw, err := json.Marshal(with)
	if err != nil {
		return nil, fmt.Errorf("encoding the order of Job %s: %w", j.name, err)
	}
	own := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{j.name},
		Verbs: []string{"get", "update"}}
	account := &corev1.ServiceAccount{ObjectMeta: j.meta(o, j.name), AutomountServiceAccountToken: new(false)}
	for _, name := range o.PullSecrets {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return []client.Object{
		&corev1.Secret{ObjectMeta: j.meta(o, j.orderName()), Data: map[string][]byte{orderKey: raw}},
		&corev1.Secret{ObjectMeta: j.meta(o, j.name), Type: corev1.SecretTypeOpaque},
		account,
		&rbacv1.Role{ObjectMeta: j.meta(o, j.name), Rules: []rbacv1.PolicyRule{own}},
		&rbacv1.RoleBinding{
			ObjectMeta: j.meta(o, j.name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: j.name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.Namespace, Name: j.name}},
		},
		j.job(o),
	}, nil
}

func (j job) job(o Options) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: j.meta(o, j.name),
		Spec: batchv1.JobSpec{
			// The hub begins again, after it has removed what is left; a Pod that is made again would create a second machine.
			BackoffLimit: new(int32(0)), PodReplacementPolicy: new(batchv1.Failed), Completions: new(int32(1)), Parallelism: new(int32(1)),
			ActiveDeadlineSeconds: new(int64(j.timeout / time.Second)),
			Template: corev1.PodTemplateSpec{
				// Autoscalers of Nodes leave alone what must not be ended: until the cloud has answered, nobody knows the instance that it is creating.
				ObjectMeta: metav1.ObjectMeta{Labels: j.labels, Annotations: map[string]string{
					"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
				}},
				Spec: j.pod(o),
			},
		},
	}
}

func (j job) pod(o Options) corev1.PodSpec {
	args := []string{"node-driver", "run", "--order=" + orderDir + "/" + orderKey, "--namespace=" + o.Namespace, "--result=" + j.name}
	if o.ProgramDir != "" {
		args = append(args, "--node-driver-dir="+o.ProgramDir)
	}
	empty := func(size string) corev1.VolumeSource {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(size))}}
	}
	return corev1.PodSpec{
		ServiceAccountName: j.name, AutomountServiceAccountToken: new(true), EnableServiceLinks: new(false),
		RestartPolicy: corev1.RestartPolicyNever, NodeSelector: o.Scheduling.nodeSelector(), Tolerations: o.Scheduling.Tolerations,
		PriorityClassName: o.Scheduling.PriorityClassName,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "node-driver", Image: o.Image, Args: args, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "order", MountPath: orderDir, ReadOnly: true}, {Name: "home", MountPath: sandbox.Home}, {Name: "tmp", MountPath: "/tmp"},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "order", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: j.orderName(), DefaultMode: new(int32(0o440)),
			}}},
			{Name: "home", VolumeSource: empty("64Mi")},
			{Name: "tmp", VolumeSource: empty("2Gi")},
		},
	}
}
