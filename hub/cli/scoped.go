package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// scoped is a connection with a namespace for arguments that do not name one.
type scoped struct {
	connection
	namespace string
}

func (s *scoped) addFlags(flags *pflag.FlagSet) {
	s.connection.addFlags(flags)
	flags.StringVarP(&s.namespace, "namespace", "n", "", "namespace of arguments that are written without one")
}

// key reads an argument that names an object: <namespace>/<name>, or <name> with --namespace.
func (s *scoped) key(argument, what string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(argument, "/")
	if !ok {
		namespace, name = s.namespace, argument
	}
	switch {
	case name == "" || strings.Contains(name, "/") || ok && namespace == "":
		return client.ObjectKey{}, fmt.Errorf("%q is not <namespace>/<%s>", argument, what)
	case namespace == "":
		return client.ObjectKey{}, fmt.Errorf("%q is not <namespace>/<%s>; write the namespace, or name it with --namespace", argument, what)
	case s.namespace != "" && s.namespace != namespace:
		return client.ObjectKey{}, fmt.Errorf("%q is not in the namespace of --namespace, %s", argument, s.namespace)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// selection reads the arguments of a command that lists what belongs to one cluster, to a namespace or to all.
func (s *scoped) selection(args []string) (client.ObjectKey, error) {
	if len(args) == 0 {
		return client.ObjectKey{Namespace: s.namespace}, nil
	}
	return s.key(args[0], "cluster")
}

// operation reads an argument that names an operation: <namespace>/<kind>/<name>, or <kind>/<name> with --namespace. Kinds are written as
// kubectl writes them. It returns an empty operation with its kind and key.
func (s *scoped) operation(argument string) (operationv1.Operation, error) {
	parts := strings.Split(argument, "/")
	if len(parts) == 2 && s.namespace != "" {
		parts = append([]string{s.namespace}, parts...)
	}
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return nil, fmt.Errorf("%q is not <namespace>/<kind>/<name>, nor <kind>/<name> with --namespace", argument)
	}
	if s.namespace != "" && s.namespace != parts[0] {
		return nil, fmt.Errorf("%q is not in the namespace of --namespace, %s", argument, s.namespace)
	}
	op := operationOfKind(parts[1])
	if op == nil {
		return nil, fmt.Errorf("%q is no kind of operation; the kinds are %s", parts[1], strings.Join(operationKinds(), ", "))
	}
	op.SetNamespace(parts[0])
	op.SetName(parts[2])
	return op, nil
}

// operationOfKind returns an empty operation of a kind, which may be written in small letters, as a plural and with its group.
func operationOfKind(kind string) operationv1.Operation {
	kind, group, qualified := strings.Cut(strings.ToLower(kind), ".")
	if qualified && group != operationv1.GroupVersion.Group {
		return nil
	}
	for _, op := range operationv1.Kinds() {
		if name := strings.ToLower(operationv1.Kind(op)); kind == name || kind == name+"s" {
			return op
		}
	}
	return nil
}

func operationKinds() (kinds []string) {
	for _, op := range operationv1.Kinds() {
		kinds = append(kinds, operationv1.Kind(op))
	}
	return kinds
}
