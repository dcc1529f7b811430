package bootstrap

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/bootdata"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/packaging/install"
)

// The keys of a bootstrap data Secret, by the contract of Cluster API.
const (
	dataKey   = "value"
	formatKey = "format"
)

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// varAgentVarDir tells the install script where the agent keeps its data.
const varAgentVarDir = "CATTLE_AGENT_VAR_DIR"

// patience is how often a machine tries to reach the hub before its bootstrap fails, with up to 30 s in between: more than a day, since
// nobody runs its bootstrap data again.
const patience = "4500"

// dataSecret is the bootstrap data: the install script with what this machine needs to know, in the form that its provider hands on. Where
// the user has to write something else, the error is a *bootdata.InvalidError.
func dataSecret(s *scope, vars []install.Var) (*corev1.Secret, error) {
	script, err := install.CompactScript(vars...)
	if err != nil {
		return nil, fmt.Errorf("making the install script: %w", err)
	}
	format := formatOf(s.bootstrap, s.machine)
	if s.bootstrap.Labels[rkev1.OSLabel] == "windows" && !registersItself(s.machine) {
		return nil, &bootdata.InvalidError{Field: "metadata.labels[" + rkev1.OSLabel + "]",
			Detail: "bootstrap data are made for Linux only; let a Windows machine be a custom machine, or set the pool's machineOS to linux"}
	}
	data, err := bootdata.Make(format, script, s.bootstrap.Spec.Userdata.InlineUserdata)
	if err != nil {
		return nil, err
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
		Data: map[string][]byte{dataKey: data, formatKey: []byte(format.ProviderFormat())},
	}, nil
}

// scriptGroups are the groups of machines that run a plain script: those of this project and of others that came before it.
var scriptGroups = []string{rkev1.GroupVersion.Group, "rke-machine.cattle.io", "elemental.cattle.io"}

// formatOf is the form of a machine's bootstrap data: what the user wants, or what machines of its kind take.
func formatOf(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine) bootdata.Format {
	switch {
	case bootstrap.Spec.Userdata.Format != "":
		return bootdata.Format(bootstrap.Spec.Userdata.Format)
	case slices.Contains(scriptGroups, machine.Spec.InfrastructureRef.APIGroup):
		return bootdata.Script
	}
	return bootdata.CloudConfig
}

// scriptVars are what the script starts with, or nil as long as the token is missing. A machine that has registered gets no token any more.
func (r *Reconciler) scriptVars(ctx context.Context, s *scope) ([]install.Var, error) {
	vars, err := r.clusterVars(ctx, s)
	if err != nil {
		return nil, err
	}
	vars = append(vars,
		install.Var{Name: install.VarServer, Value: r.Settings.ServerURL},
		install.Var{Name: install.VarCAChecksum, Value: r.Settings.CAChecksum()},
		install.Var{Name: install.VarRoleNone, Value: "true"},
		install.Var{Name: install.VarRetryCount, Value: patience})
	if registersItself(s.machine) || s.registered {
		return vars, nil
	}
	token, err := r.token(ctx, s)
	if err != nil || token == "" {
		return nil, err
	}
	return append(vars, install.Var{Name: install.VarToken, Value: token}), nil
}

// refusedError is a Refusal that waits for somebody to act.
type refusedError struct{ ownership.Refusal }

func (e *refusedError) Error() string { return e.Message }

// clusterVars are what the cluster's configuration says about the agent. A name that no shell can hold is left out.
func (r *Reconciler) clusterVars(ctx context.Context, s *scope) ([]install.Var, error) {
	controlPlane, refusal, err := ownership.ControlPlane(ctx, r.Client, s.cluster)
	if refusal != nil {
		return nil, &refusedError{*refusal}
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
	return append(vars, install.Var{Name: varAgentVarDir, Value: string(controlPlane.Spec.DataDirectories.SystemAgent)}), nil
}

// registersItself tells whether the machine was there before its objects were.
func registersItself(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.APIGroup == rkev1.GroupVersion.Group && ref.Kind == "CustomMachine"
}
