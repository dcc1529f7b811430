// Package component holds the programs of Kubernetes and etcd that a node runs as processes of their own. It is the only
// package that links them.
package component

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // schedules with a time zone

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/component-base/version"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// SetVersion makes every component of this process report a version; an empty one leaves what was built in. The patch
// version must be the one built in.
func SetVersion(v string) error {
	if v == "" {
		return nil
	}
	return version.SetDynamicVersion(v)
}

// Run becomes the named component and returns its exit code.
func Run(name string, args []string) int {
	var command *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(append([]string{"etcd"}, args...))
		return 0
	case "kube-apiserver":
		command = apiserver()
	case "kube-controller-manager":
		command = kcm.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		command = proxy.NewProxyCommand()
	default:
		fmt.Fprintf(os.Stderr, "%s: no component is called %q\n", flavour.Current.Program, name)
		return 1
	}
	command.SetArgs(args)
	return cli.Run(command)
}
