// The primitives of Hadoop for `harrier bench primitives`: its RPC, and HTTP over the Jetty that its shuffle uses.
//
// usage: java -cp CLASSES:JARS Primitives rpc|http
//
// A worker of the benchmark: takes one JSON object a line on standard input and answers each with one (the protocol is described in
// crates/bench/src/protocol.rs). The other side is a second JVM, which this one starts and which ends with it.

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.InetSocketAddress;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.ipc.ProtocolSignature;
import org.apache.hadoop.ipc.RPC;
import org.apache.hadoop.ipc.VersionedProtocol;
import org.apache.hadoop.ipc.WritableRpcEngine;
import org.apache.hadoop.util.VersionInfo;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.AbstractHandler;

public final class Primitives {
    /** Round trips of one request at most, and at least; the same as of the other workers. */
    private static final int ROUND_TRIPS_MAX = 20_000;
    private static final int ROUND_TRIPS_MIN = 3;

    /** The part of a request's time that comes before what is counted. A JVM has compiled nothing at first: it gets a second. */
    private static final double WARM_PART = 0.2;
    private static final double FIRST_WARM_SECONDS = 1.0;

    /** Of an RPC message; 64 MB and what is around them. */
    private static final int MESSAGE_BYTES_MAX = 256 * 1024 * 1024;

    /** What Hadoop's shuffle reads at a time. */
    private static final int READ_BYTES = 64 * 1024;

    /** A way to send bytes to the other JVM and back. */
    interface Pair {
        String engine();

        /** Sends a message and waits until it has come back. */
        void roundTrip(byte[] message) throws Exception;

        /** Moves packets until all bytes are there or the time is up. Returns the bytes that arrived. */
        long packets(byte[] packet, long total, double seconds) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "rpc-server" -> serveRpc();
            case "http-server" -> serveHttp();
            case "rpc" -> work(new Rpc(startServer("rpc-server")));
            case "http" -> work(new Http(startServer("http-server")));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Starts the other JVM like this one. Returns its port. */
    private static int startServer(String what) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java"));
        command.addAll(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), "Primitives", what));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        // Its standard input ends with this process.
        Process server = builder.start();
        BufferedReader output = new BufferedReader(new InputStreamReader(server.getInputStream(), StandardCharsets.UTF_8));
        Runtime.getRuntime().addShutdownHook(new Thread(server::destroy));
        String line = output.readLine();
        if (line == null) {
            throw new IOException("the other JVM did not start");
        }
        return Integer.parseInt(line.trim());
    }

    private static void untilInputEnds(int port) throws IOException {
        System.out.println(port);
        System.out.flush();
        while (System.in.read() >= 0) {
            // Nothing is said there.
        }
        System.exit(0);
    }

    private static void work(Pair pair) throws Exception {
        answer("{\"engine\": \"" + pair.engine() + "\"}");
        byte[] small = message(16);
        double until = now() + FIRST_WARM_SECONDS;
        while (now() < until) {
            pair.roundTrip(small);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                answer(request(pair, line));
            } catch (Exception error) {
                String text = String.valueOf(error).replace('\\', '/').replace('"', '\'').replace('\n', ' ');
                answer("{\"error\": \"" + text + "\"}");
            }
        }
        System.exit(0);
    }

    private static void answer(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String request(Pair pair, String line) throws Exception {
        byte[] message = message((int) number(line, "bytes"));
        double seconds = number(line, "seconds");
        if (line.contains("\"ping_pong\"")) {
            return pingPong(pair, message, seconds);
        }
        if (line.contains("\"packets\"")) {
            return packets(pair, message, (long) number(line, "total_bytes"), seconds);
        }
        throw new IllegalArgumentException("this worker only sends bytes");
    }

    /** A number of a request: its objects have plain keys and no other strings. */
    private static double number(String line, String key) {
        Matcher found = Pattern.compile("\"" + key + "\"\\s*:\\s*([0-9.eE+-]+)").matcher(line);
        return found.find() ? Double.parseDouble(found.group(1)) : 0;
    }

    private static String pingPong(Pair pair, byte[] message, double seconds) throws Exception {
        double warm = now() + seconds * WARM_PART;
        do {
            pair.roundTrip(message);
        } while (now() < warm);
        double[] halves = new double[ROUND_TRIPS_MAX];
        int count = 0;
        double until = now() + seconds;
        while (count < ROUND_TRIPS_MIN || (now() < until && count < ROUND_TRIPS_MAX)) {
            long start = System.nanoTime();
            pair.roundTrip(message);
            halves[count++] = (System.nanoTime() - start) / 2.0;
        }
        Arrays.sort(halves, 0, count);
        double p50 = halves[Math.max(0, (int) Math.ceil(0.50 * count) - 1)];
        double p99 = halves[Math.max(0, (int) Math.ceil(0.99 * count) - 1)];
        return "{\"p50_ns\": " + p50 + ", \"p99_ns\": " + p99 + "}";
    }

    private static String packets(Pair pair, byte[] packet, long total, double seconds) throws Exception {
        pair.packets(packet, total, seconds * WARM_PART);
        double start = now();
        long moved = pair.packets(packet, total, seconds);
        return "{\"moved_bytes\": " + moved + ", \"wall_s\": " + (now() - start) + ", \"cpu_s\": 0}";
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    /** Bytes that tell whether they came back as they were. */
    private static byte[] message(int bytes) {
        byte[] message = new byte[bytes];
        for (int at = 0; at < bytes; at++) {
            message[at] = (byte) (at % 251);
        }
        return message;
    }

    private static void check(byte[] message, byte[] back, int length) throws IOException {
        if (!Arrays.equals(message, 0, message.length, back, 0, length)) {
            throw new IOException("another message came back");
        }
    }

    // Hadoop RPC: a call for each round trip, and one for each packet.

    /** What the other JVM does. */
    public interface Calls extends VersionedProtocol {
        long versionID = 1L;

        BytesWritable echo(BytesWritable message);

        LongWritable take(BytesWritable packet);
    }

    public static final class CallsHere implements Calls {
        @Override
        public BytesWritable echo(BytesWritable message) {
            return message;
        }

        @Override
        public LongWritable take(BytesWritable packet) {
            return new LongWritable(packet.getLength());
        }

        @Override
        public long getProtocolVersion(String protocol, long version) {
            return versionID;
        }

        @Override
        public ProtocolSignature getProtocolSignature(String protocol, long version, int methods) throws IOException {
            return ProtocolSignature.getProtocolSignature(this, protocol, version, methods);
        }
    }

    private static Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.setInt("ipc.maximum.data.length", MESSAGE_BYTES_MAX);
        configuration.setInt("ipc.maximum.response.length", MESSAGE_BYTES_MAX);
        configuration.setBoolean("ipc.client.tcpnodelay", true);
        // Of an answer that is larger Hadoop makes a warning, with all bytes of the question as text.
        configuration.setInt("ipc.server.max.response.size", MESSAGE_BYTES_MAX);
        RPC.setProtocolEngine(configuration, Calls.class, WritableRpcEngine.class);
        return configuration;
    }

    private static void serveRpc() throws Exception {
        RPC.Server server = new RPC.Builder(configuration())
            .setProtocol(Calls.class)
            .setInstance(new CallsHere())
            .setBindAddress("127.0.0.1")
            .setPort(0)
            .setNumHandlers(1)
            .build();
        server.start();
        untilInputEnds(server.getListenerAddress().getPort());
    }

    private static final class Rpc implements Pair {
        private final Calls calls;

        Rpc(int port) throws IOException {
            calls = RPC.getProxy(Calls.class, Calls.versionID, new InetSocketAddress("127.0.0.1", port), configuration());
        }

        @Override
        public String engine() {
            return "Hadoop RPC " + VersionInfo.getVersion() + " (Writable), Java " + Runtime.version().feature();
        }

        @Override
        public void roundTrip(byte[] message) throws IOException {
            BytesWritable back = calls.echo(new BytesWritable(message));
            check(message, back.getBytes(), back.getLength());
        }

        @Override
        public long packets(byte[] packet, long total, double seconds) {
            double until = now() + seconds;
            long moved = 0;
            do {
                moved += calls.take(new BytesWritable(packet)).get();
            } while (moved < total && now() < until);
            return moved;
        }
    }

    // HTTP over Jetty: a POST for each round trip, and one GET whose answer is written in packets, as in Hadoop's shuffle.

    private static void serveHttp() throws Exception {
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        connector.setPort(0);
        server.addConnector(connector);
        server.setHandler(new AbstractHandler() {
            @Override
            public void handle(String path, Request base, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
                base.setHandled(true);
                response.setContentType("application/octet-stream");
                if (path.equals("/echo")) {
                    byte[] message = request.getInputStream().readAllBytes();
                    response.setContentLength(message.length);
                    response.getOutputStream().write(message);
                    return;
                }
                byte[] packet = message(Integer.parseInt(request.getParameter("bytes")));
                long total = Long.parseLong(request.getParameter("total"));
                double until = now() + Double.parseDouble(request.getParameter("seconds"));
                OutputStream out = response.getOutputStream();
                long sent = 0;
                do {
                    out.write(packet);
                    sent += packet.length;
                } while (sent < total && now() < until);
            }
        });
        server.start();
        untilInputEnds(connector.getLocalPort());
    }

    private static final class Http implements Pair {
        private final String server;
        private final byte[] read = new byte[READ_BYTES];

        Http(int port) {
            server = "http://127.0.0.1:" + port;
        }

        @Override
        public String engine() {
            return "Jetty " + Server.getVersion() + ", HttpURLConnection, Java " + Runtime.version().feature();
        }

        @Override
        public void roundTrip(byte[] message) throws IOException {
            HttpURLConnection connection = (HttpURLConnection) new URL(server + "/echo").openConnection();
            connection.setRequestMethod("POST");
            connection.setDoOutput(true);
            connection.setFixedLengthStreamingMode(message.length);
            try (OutputStream out = connection.getOutputStream()) {
                out.write(message);
            }
            byte[] back = new byte[message.length];
            // The connection is used again when its answer was read to the end.
            try (InputStream in = connection.getInputStream()) {
                new DataInputStream(in).readFully(back);
                if (in.read() >= 0) {
                    throw new IOException("more came back");
                }
            }
            check(message, back, back.length);
        }

        @Override
        public long packets(byte[] packet, long total, double seconds) throws IOException {
            String query = "/move?bytes=" + packet.length + "&total=" + total + "&seconds=" + seconds;
            HttpURLConnection connection = (HttpURLConnection) new URL(server + query).openConnection();
            long moved = 0;
            try (InputStream in = connection.getInputStream()) {
                for (int got = in.read(read); got >= 0; got = in.read(read)) {
                    moved += got;
                }
            }
            return moved;
        }
    }
}
