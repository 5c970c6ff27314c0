// SPDX-License-Identifier: Apache-2.0 OR MIT
// Table 1 of feng-2000 in ns-3: clients with Poisson sources, a gateway, a server. The
// peer that the simulator is held against. One run, one JSON object on stdout.
//
// What ns-3 does differently from ns-2 and from most people's expectation is set here
// explicitly, each with its reason; see docs/results for how much each of them matters.

#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

// In the place of ns-3.37's own, which the dynamic linker resolves to this one. That one
// proposes a segment of no bytes when what is outstanding fills the receiver's window to
// the last byte, and the sender then follows a null pointer. A window of 20 whole packets
// does that at once. Here less room than a segment is no room; all else is as RFC 6675
// has it and ns-3.37 too: first what counts as lost, then new data, then, in recovery,
// the first that was not retransmitted.
bool
ns3::TcpTxBuffer::NextSeg(SequenceNumber32* from, SequenceNumber32* to, bool in_recovery) const
{
    SequenceNumber32 at = m_firstByteSeq;
    SequenceNumber32 first_open = at;
    bool has_open = false;
    for (const TcpTxItem* item : m_sentList)
    {
        if (!item->m_retrans && !item->m_sacked)
        {
            if (item->m_lost)
            {
                *from = at;
                *to = at + m_segmentSize;
                return true;
            }
            if (in_recovery && !has_open)
            {
                first_open = at;
                has_open = true;
            }
        }
        at += item->m_packet->GetSize();
    }
    const SequenceNumber32 unsent = m_firstByteSeq + m_sentSize;
    if (SizeFromSequence(unsent) > 0)
    {
        if (m_rWndCallback() < m_sentSize + m_segmentSize)
        {
            return false;
        }
        *from = unsent;
        *to = unsent + m_segmentSize;
        return true;
    }
    if (has_open)
    {
        *from = first_open;
        *to = first_open + m_segmentSize;
    }
    return has_open;
}

namespace
{

constexpr uint16_t PORT = 5000;
constexpr uint32_t PPP_BYTES = 2;  // what a point-to-point device adds to an IP packet
constexpr uint32_t TCP_BYTES = 40; // IP and TCP without options
constexpr uint32_t UDP_BYTES = 28;

struct Options
{
    std::string transport = "newreno";
    std::string queue = "fifo";
    uint32_t clients = 10;
    uint32_t seed = 1;
    double duration = 200.0; // s
    double steady = 20.0;    // s: the steady part begins here
    double window = 0.1;     // s: of the counts; the round-trip propagation delay
    double interval = 0.01;  // s: mean time between a client's packets
    uint32_t packet = 1500;  // bytes on the line, PPP included
    uint32_t limit = 50;     // packets that the gateway holds
    uint32_t most = 20;      // packets: the receiver's window
    uint32_t delack = 1;     // segments per ACK
    bool timestamps = false;
    bool limitedTransmit = false;
    bool gentle = false;
    std::string recovery = "classic";
    double redMin = 10, redMax = 40, redWeight = 0.002, redTerm = 10;
    uint32_t redMean = 1500; // bytes: for the decay while the queue is idle
};

// Submits one packet at a time, at moments of a Poisson process.
class PoissonSource : public Application
{
  public:
    void Setup(Ptr<Socket> socket, Address peer, uint32_t bytes, double mean, int64_t stream)
    {
        m_socket = socket;
        m_peer = peer;
        m_bytes = bytes;
        m_gap = CreateObject<ExponentialRandomVariable>();
        m_gap->SetAttribute("Mean", DoubleValue(mean));
        m_gap->SetStream(stream);
    }

    uint64_t m_submitted = 0;
    uint64_t m_refused = 0; // by the socket: its buffer must be large enough for none

  private:
    void StartApplication() override
    {
        m_socket->Bind();
        m_socket->Connect(m_peer);
        Next();
    }

    void StopApplication() override
    {
        m_next.Cancel();
    }

    void Next()
    {
        m_next = Simulator::Schedule(Seconds(m_gap->GetValue()), &PoissonSource::Submit, this);
    }

    void Submit()
    {
        m_submitted++;
        if (m_socket->Send(Create<Packet>(m_bytes)) < 0)
        {
            m_refused++;
        }
        Next();
    }

    Ptr<Socket> m_socket;
    Address m_peer;
    uint32_t m_bytes = 0;
    Ptr<ExponentialRandomVariable> m_gap;
    EventId m_next;
};

struct Counts
{
    double window = 0.1;
    uint32_t interface = 0;        // of the gateway, towards the server
    std::vector<uint32_t> arrived; // packets per window
    uint64_t arrivals = 0;
    uint64_t drops = 0;
    uint64_t transmissions = 0; // of any packet on any line
    uint64_t timeouts = 0; // first ones: those of the backoff behind them do not show
};

Counts g_counts;

void
OnForward(const Ipv4Header&, Ptr<const Packet>, uint32_t interface)
{
    if (interface != g_counts.interface)
    {
        return;
    }
    const auto at = static_cast<std::size_t>(Simulator::Now().GetSeconds() / g_counts.window);
    if (at < g_counts.arrived.size())
    {
        g_counts.arrived[at]++;
    }
    g_counts.arrivals++;
}

void
OnTransmit(Ptr<const Packet>)
{
    g_counts.transmissions++;
}

void
OnDrop(Ptr<const Packet>)
{
    g_counts.drops++;
}

void
OnQueueDiscDrop(Ptr<const QueueDiscItem>)
{
    g_counts.drops++;
}

void
OnCongestionState(TcpSocketState::TcpCongState_t before, TcpSocketState::TcpCongState_t after)
{
    if (after == TcpSocketState::CA_LOSS && before != TcpSocketState::CA_LOSS)
    {
        g_counts.timeouts++;
    }
}

// Mean, and standard deviation over mean, of the windows from `first` on.
void
PrintWindows(const char* name, std::size_t first)
{
    const auto& all = g_counts.arrived;
    double sum = 0;
    double squares = 0;
    const double count = static_cast<double>(all.size() - first);
    for (std::size_t at = first; at < all.size(); at++)
    {
        sum += all[at];
    }
    const double mean = sum / count;
    for (std::size_t at = first; at < all.size(); at++)
    {
        squares += (all[at] - mean) * (all[at] - mean);
    }
    std::cout << ",\"mean_packets_" << name << "\":" << mean << ",\"cov_" << name
              << "\":" << std::sqrt(squares / (count - 1)) / mean;
}

void
SetDefaults(const Options& options, uint32_t payload)
{
    // 3.37's own default is CUBIC, with proportional rate reduction.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(options.recovery == "classic"
                                       ? TcpClassicRecovery::GetTypeId()
                                       : TcpPrrRecovery::GetTypeId()));
    // One submitted packet is one segment.
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(payload));
    Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(options.delack));
    // The receiver reads at once, so its buffer is the window that it advertises.
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(options.most * payload));
    // What waits at a client has no limit in ns-2.
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1u << 30));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(options.timestamps));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit",
                       BooleanValue(options.limitedTransmit));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
}

} // namespace

int
main(int argc, char* argv[])
{
    Options options;
    CommandLine command;
    command.AddValue("transport", "udp or newreno", options.transport);
    command.AddValue("queue", "fifo or red", options.queue);
    command.AddValue("clients", "number of clients", options.clients);
    command.AddValue("seed", "of the random numbers", options.seed);
    command.AddValue("duration", "simulated seconds", options.duration);
    command.AddValue("delack", "segments per ACK", options.delack);
    command.AddValue("timestamps", "TCP's option", options.timestamps);
    command.AddValue("limitedTransmit", "RFC 3042", options.limitedTransmit);
    command.AddValue("recovery", "classic or prr", options.recovery);
    command.AddValue("gentle", "RED's", options.gentle);
    command.AddValue("redMean", "RED's mean packet, bytes", options.redMean);
    command.AddValue("redWeight", "RED's weight of an arrival", options.redWeight);
    command.AddValue("limit", "packets that the gateway holds", options.limit);
    command.Parse(argc, argv);
    const bool tcp = options.transport == "newreno";
    const bool red = options.queue == "red";
    NS_ABORT_MSG_UNLESS(tcp || options.transport == "udp", "--transport: udp or newreno");
    NS_ABORT_MSG_UNLESS(red || options.queue == "fifo", "--queue: fifo or red");

    const uint32_t headers =
        PPP_BYTES + (tcp ? TCP_BYTES + (options.timestamps ? 12 : 0) : UDP_BYTES);
    const uint32_t payload = options.packet - headers;
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(options.seed);
    SetDefaults(options, payload);

    NodeContainer gateway(1);
    NodeContainer server(1);
    NodeContainer clients(options.clients);
    InternetStackHelper internet;
    internet.InstallAll();

    PointToPointHelper edge;
    edge.SetDeviceAttribute("DataRate", StringValue("10Mbps"));
    edge.SetChannelAttribute("Delay", StringValue("25ms"));
    edge.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    PointToPointHelper core;
    core.SetDeviceAttribute("DataRate", StringValue("50Mbps"));
    core.SetChannelAttribute("Delay", StringValue("25ms"));
    core.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));

    // Flow control has the layer above stop before a full queue, and drop there unseen. Only
    // RED needs it, to hold packets itself while the device is busy.
    edge.DisableFlowControl();
    if (!red)
    {
        core.DisableFlowControl();
    }
    // The gateway's queue is the device's own for FIFO: what is being sent is not in it.
    // RED is a queueing discipline above, and the device's queue holds one packet more.
    NetDeviceContainer bottleneck = core.Install(gateway.Get(0), server.Get(0));
    auto device = DynamicCast<PointToPointNetDevice>(bottleneck.Get(0));
    const uint32_t inDevice = red ? 1 : options.limit;
    device->GetQueue()->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, inDevice));
    Ptr<QueueDisc> discipline;
    if (red)
    {
        TrafficControlHelper control;
        control.SetRootQueueDisc(
            "ns3::RedQueueDisc",
            "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, options.limit)),
            "MinTh", DoubleValue(options.redMin),
            "MaxTh", DoubleValue(options.redMax),
            "QW", DoubleValue(options.redWeight),
            "LInterm", DoubleValue(options.redTerm),
            "Gentle", BooleanValue(options.gentle),
            "MeanPktSize", UintegerValue(options.redMean),
            "LinkBandwidth", StringValue("50Mbps"),
            "LinkDelay", StringValue("25ms"));
        discipline = control.Install(bottleneck.Get(0)).Get(0);
        discipline->TraceConnectWithoutContext("Drop", MakeCallback(&OnQueueDiscDrop));
    }
    else
    {
        device->GetQueue()->TraceConnectWithoutContext("Drop", MakeCallback(&OnDrop));
    }

    NetDeviceContainer devices(bottleneck);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.252");
    Ipv4InterfaceContainer core_addresses = addresses.Assign(bottleneck);
    for (uint32_t client = 0; client < options.clients; client++)
    {
        NetDeviceContainer pair = edge.Install(clients.Get(client), gateway.Get(0));
        addresses.NewNetwork();
        addresses.Assign(pair);
        devices.Add(pair);
    }
    // Giving an address installs fq_codel where there is flow control and nothing was asked
    // for: at the server here.
    if (red)
    {
        TrafficControlHelper().Uninstall(bottleneck.Get(1));
    }
    for (uint32_t at = 0; at < devices.GetN(); at++)
    {
        devices.Get(at)->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&OnTransmit));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    const std::string factory = tcp ? "ns3::TcpSocketFactory" : "ns3::UdpSocketFactory";
    PacketSinkHelper sink_helper(factory, InetSocketAddress(Ipv4Address::GetAny(), PORT));
    ApplicationContainer sinks = sink_helper.Install(server.Get(0));
    const InetSocketAddress peer(core_addresses.GetAddress(1), PORT);
    std::vector<Ptr<PoissonSource>> sources;
    for (uint32_t client = 0; client < options.clients; client++)
    {
        auto socket = Socket::CreateSocket(clients.Get(client), TypeId::LookupByName(factory));
        if (tcp)
        {
            socket->TraceConnectWithoutContext("CongState", MakeCallback(&OnCongestionState));
        }
        auto source = CreateObject<PoissonSource>();
        source->Setup(socket, peer, payload, options.interval, client);
        clients.Get(client)->AddApplication(source);
        sources.push_back(source);
    }

    g_counts.window = options.window;
    g_counts.arrived.resize(std::llround(options.duration / options.window));
    auto ipv4 = gateway.Get(0)->GetObject<Ipv4L3Protocol>();
    g_counts.interface = ipv4->GetInterfaceForDevice(bottleneck.Get(0));
    ipv4->TraceConnectWithoutContext("UnicastForward", MakeCallback(&OnForward));

    Simulator::Stop(Seconds(options.duration));
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    Simulator::Run();
    const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;

    uint64_t submitted = 0;
    uint64_t refused = 0;
    for (const auto& source : sources)
    {
        submitted += source->m_submitted;
        refused += source->m_refused;
    }
    const auto delivered = DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx() / payload;
    std::cout.precision(8);
    std::cout << "{\"transport\":\"" << options.transport << "\",\"queue\":\"" << options.queue
              << "\",\"clients\":" << options.clients << ",\"seed\":" << options.seed
              << ",\"submitted_packets\":" << submitted << ",\"refused_packets\":" << refused
              << ",\"gateway_packets\":" << g_counts.arrivals
              << ",\"dropped_packets\":" << g_counts.drops
              << ",\"delivered_packets\":" << delivered << ",\"throughput_bps\":"
              << static_cast<double>(delivered) * options.packet * 8 / options.duration
              << ",\"loss\":"
              << static_cast<double>(g_counts.drops) / static_cast<double>(g_counts.arrivals)
              << ",\"timeouts\":" << g_counts.timeouts;
    PrintWindows("whole", 0);
    PrintWindows("steady",
                 static_cast<std::size_t>(std::llround(options.steady / options.window)));
    std::cout << ",\"poisson_cov\":"
              << 1 / std::sqrt(options.clients * options.window / options.interval)
              << ",\"transmissions\":" << g_counts.transmissions
              << ",\"events\":" << Simulator::GetEventCount()
              << ",\"wall_s\":" << wall.count()
              << ",\"cpu_s\":" << cpu << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
