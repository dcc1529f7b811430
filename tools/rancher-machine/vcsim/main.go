// Command vcsim plays a vCenter for tests, by the simulator of VMware's own library: its only argument is the address to listen on.
package main

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func main() {
	model := simulator.VPX()
	defer model.Remove()
	if err := model.Create(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	removeNetworks()
	model.Service.Listen, model.Service.TLS = &url.URL{Host: os.Args[1]}, &tls.Config{}
	// It is not closed: that waits for clients that keep their connections.
	fmt.Println(model.Service.NewServer().URL)
	go tellAddresses()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
}

// removeNetworks leaves machines without networks: the driver replaces them, and the simulator would go on telling of the first.
func removeNetworks() {
	for _, object := range simulator.Map.All("VirtualMachine") {
		vm := object.(*simulator.VirtualMachine)
		vm.Guest.Net = nil
		vm.Config.Hardware.Device = slices.DeleteFunc(vm.Config.Hardware.Device, func(device types.BaseVirtualDevice) bool {
			_, is := device.(types.BaseVirtualEthernetCard)
			return is
		})
	}
}

// tellAddresses says of machines with an address what the tools in a guest say, for which drivers wait: the simulator does not.
func tellAddresses() {
	for range time.Tick(200 * time.Millisecond) {
		for _, object := range simulator.Map.All("VirtualMachine") {
			vm := object.(*simulator.VirtualMachine)
			simulator.Map.WithLock(simulator.SpoofContext(), vm, func() {
				nics, changed := slices.Clone(vm.Guest.Net), false
				for i := range nics {
					if len(nics[i].IpAddress) == 0 || nics[i].IpConfig != nil {
						continue
					}
					address := types.NetIpConfigInfoIpAddress{IpAddress: nics[i].IpAddress[0], State: string(types.NetIpConfigInfoIpAddressStatusPreferred)}
					nics[i].IpConfig, changed = &types.NetIpConfigInfo{IpAddress: []types.NetIpConfigInfoIpAddress{address}}, true
				}
				if changed {
					simulator.Map.Update(vm, []types.PropertyChange{{Name: "guest.net", Val: nics}})
				}
			})
		}
	}
}
