package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// port is a TCP port that RKE2 or k3s needs.
type port struct {
	number  int
	purpose string
	server  bool // needed only by servers
}

var ports = []port{
	{6443, "Kubernetes API", true}, {9345, "RKE2 registration", true}, {2379, "etcd clients", true}, {2380, "etcd peers", true},
	{10250, "kubelet", false},
}

// distributionPrograms are prefixes of the programs of a distribution that may listen on these ports.
var distributionPrograms = []string{"rke2", "k3s", "kube-apiserver", "etcd", "kubelet", "containerd", "distro"}

// checkPorts finds programs other than the distribution that listen on its ports.
func checkPorts(_ context.Context, m Machine) []Result {
	listeners, err := m.listeners()
	if err != nil {
		return []Result{skipped("ports", err.Error())}
	}
	var free []string
	var results []Result
	for _, p := range ports {
		if p.server && m.role == roleWorker {
			continue
		}
		inode, used := listeners[p.number]
		if !used {
			free = append(free, strconv.Itoa(p.number))
			continue
		}
		results = append(results, m.checkUsedPort(p, inode))
	}
	if len(free) > 0 {
		results = append(results, ok("ports", "free: "+strings.Join(free, ", ")))
	}
	return results
}

func (m Machine) checkUsedPort(p port, inode string) Result {
	name := fmt.Sprintf("port %d (%s)", p.number, p.purpose)
	pid, program := m.socketOwner(inode)
	switch {
	case pid == "":
		return warning(name, "used by an unknown program", fmt.Sprintf("find it with ss -ltnp 'sport = :%d'", p.number))
	case slices.ContainsFunc(distributionPrograms, func(prefix string) bool { return strings.HasPrefix(program, prefix) }):
		return ok(name, "used by "+program+", as expected")
	}
	message := fmt.Sprintf("used by %s, PID %s", program, pid)
	if p.server && m.role == roleUnknown {
		return warning(name, message, "stop that program if this machine becomes a server")
	}
	if program == "hub" && p.number == 6443 {
		return problem(name, message, "if it is the hub of this project, start it with another port for its API server, such as --api-port 7443")
	}
	return problem(name, message, "stop that program, or configure another port for it")
}

// listeners returns the TCP ports in state LISTEN, with the inode of a socket.
func (m Machine) listeners() (map[int]string, error) {
	const listen = "0A"
	found := map[int]string{}
	read := false
	for _, file := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(m.path("proc/net", file))
		if err != nil {
			continue
		}
		read = true
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != listen {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if number, err := strconv.ParseUint(hex, 16, 16); err == nil {
				found[int(number)] = fields[9]
			}
		}
	}
	if !read {
		return nil, fmt.Errorf("%s is not readable", m.path("proc/net/tcp"))
	}
	return found, nil
}

// socketOwner finds the process that has a socket open; empty if there is none.
func (m Machine) socketOwner(inode string) (pid, program string) {
	for _, process := range m.processes() {
		descriptors, err := os.ReadDir(m.path("proc", process, "fd"))
		if err != nil {
			continue
		}
		for _, descriptor := range descriptors {
			if target, err := os.Readlink(m.path("proc", process, "fd", descriptor.Name())); err == nil && target == "socket:["+inode+"]" {
				return process, m.read("proc", process, "comm")
			}
		}
	}
	return "", ""
}
