package machinessh

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/response"
)

// component is the reporting component of Events.
const component = "drover-hub"

// The text of a Secret becomes arguments of a user's SSH client.
var (
	users     = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9._-]{0,63}$`)
	addresses = regexp.MustCompile(`^[a-zA-Z0-9:][a-zA-Z0-9.:%-]{0,252}$`)
)

// state is what the hub knows of a machine.
type state struct {
	machine *clusterv1.Machine
	access  Access
	// tunnel is the key of its tunnel.
	tunnel string
}

// authorize lets through who may get the machine state Secret of a machine, which may be nil. Whoever may not learns nothing of which
// machines there are.
func (h *Handler) authorize(ctx context.Context, who user.Info, key client.ObjectKey, machine *clusterv1.Machine) error {
	denied := response.Errorf(http.StatusForbidden, "there is no machine %s of a node driver that user %q may log in to; "+
		"this requires the verb get on its Secret <infrastructure machine>-machine-state", key, who.GetName())
	if machine == nil {
		return denied
	}
	decision, _, err := h.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "get", Namespace: machine.Namespace, Name: secretOf(machine), APIVersion: "v1", Resource: "secrets",
		ResourceRequest: true,
	})
	switch {
	case err != nil:
		return fmt.Errorf("reviewing the access of a user: %w", err)
	case decision != authorizer.DecisionAllow:
		return denied
	}
	return nil
}

// machine returns a Machine of a node driver; nil if there is none.
func (h *Handler) machine(ctx context.Context, key client.ObjectKey) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	found, err := objects.Get(ctx, h.Client, key, machine)
	if err != nil || !found || machine.Spec.InfrastructureRef.APIGroup != schema.MachineGroup {
		return nil, err
	}
	return machine, nil
}

// secretOf names the machine state Secret of a Machine.
func secretOf(machine *clusterv1.Machine) string {
	return rkev1.MachineStateSecretName(machine.Spec.InfrastructureRef.Name)
}

// state reads what there is of a machine.
func (h *Handler) state(ctx context.Context, machine *clusterv1.Machine) (*state, error) {
	if machine == nil {
		return nil, response.Errorf(http.StatusNotFound, "the Machine is gone")
	}
	key, name := client.ObjectKeyFromObject(machine), secretOf(machine)
	secret := &corev1.Secret{}
	found, err := objects.Get(ctx, h.Live, client.ObjectKey{Namespace: key.Namespace, Name: name}, secret)
	if err != nil {
		return nil, err
	}
	if !found || secret.Type != rkev1.MachineStateSecretType {
		return nil, response.Errorf(http.StatusConflict, "the node driver has saved nothing of Machine %s yet", key)
	}
	saved, err := nodedriver.Decode(nodedriver.InstanceName(machine.Spec.InfrastructureRef.Name), secret.Data[nodedriver.StateKey])
	if err != nil {
		return nil, response.Errorf(http.StatusConflict, "Secret %s of Machine %s: %v", name, key, err)
	}
	s := &state{machine: machine, access: Access{UID: string(machine.UID), PrivateKey: saved.SSHKey()}}
	if err := s.access.read(saved.Config()); err != nil {
		return nil, response.Errorf(http.StatusConflict, "Secret %s of Machine %s: %v", name, key, err)
	}
	if s.tunnel, err = h.TunnelKey(ctx, machine); err != nil {
		return nil, err
	}
	return s, nil
}

// read reads how the driver logs in to the machine. The names are those of the BaseDriver of libmachine.
func (a *Access) read(config json.RawMessage) error {
	var known struct {
		SSHUser, IPAddress string
		SSHPort            int
	}
	if err := json.Unmarshal(config, &known); err != nil {
		return fmt.Errorf("the configuration of the driver is not readable: %w", err)
	}
	a.User, a.Address, a.Port = known.SSHUser, known.IPAddress, known.SSHPort
	if a.User == "" {
		a.User = "root"
	}
	if a.Port == 0 {
		a.Port = 22
	}
	switch {
	case a.PrivateKey == nil:
		return fmt.Errorf("the node driver has saved no SSH key")
	case !users.MatchString(a.User):
		return fmt.Errorf("SSHUser %.70q is no name of a user", a.User)
	case a.Port < 1 || a.Port > 65535:
		return fmt.Errorf("SSHPort %d is no port", a.Port)
	case a.Address != "" && !addresses.MatchString(a.Address):
		return fmt.Errorf("IPAddress %.260q is neither an IP address nor a host name", a.Address)
	}
	return nil
}

// record creates an Event of a Machine. What it tells of is not done without it.
func (h *Handler) record(ctx context.Context, machine *clusterv1.Machine, reason, format string, args ...any) error {
	now := metav1.NewTime(time.Now())
	event := &corev1.Event{
		// The name of the machine may have 253 characters already, the limit for names.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace, Name: machine.Name[:min(len(machine.Name), 230)] + "." + rand.String(16),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID,
		},
		Reason: reason, Message: message.Bound(fmt.Sprintf(format, args...), message.MaxEvent), Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if err := h.Client.Create(ctx, event); err != nil {
		return fmt.Errorf("creating the Event of a Machine: %w", err)
	}
	return nil
}
