package rkebootstrap

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/api/crds"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/bootstrapdata"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/packaging/install"
)

// The keys of a bootstrap data Secret: two by the contract of Cluster API, and the bootstrap token, which is in the value, too.
const (
	dataKey   = "value"
	formatKey = "format"
	tokenKey  = "token"
)

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// retryCount is the number of attempts to reach the hub, with up to 30 s in between, before the bootstrap fails: more than a day, since
// bootstrap data run only once.
const retryCount = "4500"

// dataSecret is the Secret with the bootstrap data: the install script with the variables of this machine, in the format of its provider.
// The error is a *bootstrapdata.InvalidError if the user has to change the spec.
func (r *Reconciler) dataSecret(s *scope, vars []install.Var) (*corev1.Secret, error) {
	script, err := install.CompactScript(vars...)
	if err != nil {
		return nil, fmt.Errorf("rendering the install script: %w", err)
	}
	format := formatOf(s.bootstrap, s.machine)
	if s.bootstrap.Labels[rkev1.OSLabel] == "windows" && !isCustom(s.machine) {
		return nil, &bootstrapdata.InvalidError{Field: "metadata.labels[" + rkev1.OSLabel + "]",
			Detail: "bootstrap data are for Linux, and this hub has no agent for Windows; set machineOS of the pool to linux"}
	}
	if s.machine.Spec.InfrastructureRef.APIGroup == crds.NodeDriverGroup && !s.bootstrap.Spec.Userdata.DefaultScript() {
		return nil, &bootstrapdata.InvalidError{Field: "spec.userdata", Detail: "machines of node drivers take user data in their machine " +
			"configuration, in the field that the driver has for it; leave it empty, or remove userdata of the pool"}
	}
	data, err := r.pack(format, script, s.bootstrap.Spec.Userdata.InlineUserdata, maxPlain(s.machine))
	if err != nil {
		return nil, err
	}
	content := map[string][]byte{dataKey: data, formatKey: []byte(format.ProviderFormat())}
	if s.token.token != "" {
		content[tokenKey] = []byte(s.token.token)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.bootstrap.Namespace,
			Name:      rkev1.BootstrapSecretName(s.bootstrap.Name),
			Labels: map[string]string{
				clusterv1.ClusterNameLabel: s.cluster.Name,
				rkev1.ClusterNameLabel:     s.cluster.Name,
				rkev1.BootstrapNameLabel:   s.bootstrap.Name,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
		},
		Type: rkev1.BootstrapSecretType,
		Data: content,
	}, nil
}

// keptData is of how many machines bootstrap data are kept. A machine that is made is reconciled some times within seconds.
const keptData = 256

// pack makes bootstrap data, or returns those that were made before from the same. A cloud-config that is longer than limit is compressed;
// 0 is no limit.
func (r *Reconciler) pack(format bootstrapdata.Format, script []byte, userdata string, limit int) ([]byte, error) {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%s%s", format, limit, len(script), script, userdata))
	if data, ok := r.packed.Get(digest); ok {
		return data.([]byte), nil
	}
	data, err := bootstrapdata.Make(format, script, userdata)
	if err == nil && format == bootstrapdata.CloudConfig && limit > 0 && len(data) > limit {
		data, err = bootstrapdata.Compress(data)
	}
	if err == nil {
		r.packed.Add(digest, data)
	}
	return data, err
}

// scriptGroups are the API groups of infrastructure providers whose machines run a shell script.
var scriptGroups = []string{rkev1.GroupVersion.Group, crds.NodeDriverGroup, "elemental.cattle.io"}

// plainLimits are how many bytes of user data clouds take, by the infrastructure machine of their provider, where that hands on any bytes.
// The providers of GCP, Hetzner Cloud and Metal3 put user data into JSON as a text, and those of KubeVirt and Docker read it.
var plainLimits = map[string]int{"AWSMachine": 16 << 10, "AzureMachine": 48_000, "OpenStackMachine": 48_000, "VSphereMachine": 48_000}

// maxPlain is the size up to which a cloud-config for a machine is not compressed; 0 for any.
func maxPlain(machine *clusterv1.Machine) int {
	if machine.Spec.InfrastructureRef.APIGroup != capicontract.InfrastructureGroup {
		return 0
	}
	return plainLimits[machine.Spec.InfrastructureRef.Kind]
}

// formatOf is the format of a machine's bootstrap data: that of the spec, or the default of its provider.
func formatOf(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine) bootstrapdata.Format {
	switch {
	case bootstrap.Spec.Userdata.Format != "":
		return bootstrapdata.Format(bootstrap.Spec.Userdata.Format)
	case slices.Contains(scriptGroups, machine.Spec.InfrastructureRef.APIGroup):
		return bootstrapdata.Script
	}
	return bootstrapdata.CloudConfig
}

// scriptVars are the variables of the script. A machine that has registered gets no token any more.
func (r *Reconciler) scriptVars(ctx context.Context, s *scope) ([]install.Var, error) {
	vars, err := r.clusterVars(ctx, s)
	if err != nil {
		return nil, err
	}
	vars = append(vars,
		install.Var{Name: install.VarServer, Value: r.Settings.ServerURL},
		install.Var{Name: install.VarCAChecksum, Value: r.Settings.CAChecksum()},
		install.Var{Name: install.VarRoleNone, Value: "true"},
		install.Var{Name: install.VarRetryCount, Value: retryCount})
	if s.token.token != "" {
		vars = append(vars, install.Var{Name: install.VarToken, Value: s.token.token})
	}
	return vars, nil
}

// refusedError is the Cause for which the RKEControlPlane does not count, as an error.
type refusedError struct{ *cause.Cause }

func (e *refusedError) Error() string { return e.Message }

// clusterVars are the variables from the cluster's configuration. Names that are no valid shell names are left out.
func (r *Reconciler) clusterVars(ctx context.Context, s *scope) ([]install.Var, error) {
	controlPlane, refusal, err := ownership.ControlPlane(ctx, r.Client, s.cluster)
	if refusal != nil {
		return nil, &refusedError{refusal}
	}
	if err != nil || controlPlane == nil {
		return nil, err
	}
	var vars []install.Var
	for _, env := range controlPlane.Spec.AgentEnvVars {
		if shellName.MatchString(env.Name) {
			vars = append(vars, install.Var{Name: env.Name, Value: env.Value})
		}
	}
	return append(vars, install.Var{Name: install.VarAgentVarDir, Value: string(controlPlane.Spec.DataDirectories.SystemAgent)}), nil
}

// isCustom returns whether the machine is a custom one, which has run the install script before its objects were created.
func isCustom(machine *clusterv1.Machine) bool {
	return rkev1.Refers(machine.Spec.InfrastructureRef, "CustomMachine")
}
