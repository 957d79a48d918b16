// A cloud-controller-manager made of Kubernetes' own framework, for benchmarks to be read beside Cairn's.
//
// Its cloud is as fast as one can be: it has no API, and makes up what it says of a machine from the Node's name. So
// what is measured is the framework.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/klog/v2"
)

const provider = "reference"

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(opts, start, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func init() {
	cloudprovider.RegisterCloudProvider(provider, func(io.Reader) (cloudprovider.Interface, error) { return cloud{}, nil })
}

func start(c *config.CompletedConfig) cloudprovider.Interface {
	shared := c.ComponentConfig.KubeCloudShared.CloudProvider
	started, err := cloudprovider.InitCloudProvider(shared.Name, shared.CloudConfigFile)
	if err != nil || started == nil {
		klog.Fatalf("cloud provider: %v %v", started, err)
	}
	return started
}

// cloud has instances and nothing else.
type cloud struct{}

func (cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                  { return c, true }
func (cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (cloud) ProviderName() string                                              { return provider }
func (cloud) HasClusterID() bool                                                { return true }

func (cloud) InstanceExists(context.Context, *v1.Node) (bool, error)   { return true, nil }
func (cloud) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }

// InstanceMetadata says of node-00042 what the inventory of the benchmark says of it.
func (cloud) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	_, digits, _ := strings.Cut(node.Name, "-")
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("node %s is none of the benchmark's: %w", node.Name, err)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], 10<<24|128<<16|uint32(number))
	return &cloudprovider.InstanceMetadata{
		ProviderID:   fmt.Sprintf("%s://machine-%05d", provider, number),
		InstanceType: "bench.small",
		Zone:         "rack1",
		Region:       "bench",
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: netip.AddrFrom4(address).String()},
			{Type: v1.NodeHostName, Address: node.Name},
		},
	}, nil
}
