package weft;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import org.apache.dubbo.common.URL;
import org.apache.dubbo.common.extension.ExtensionLoader;
import org.apache.dubbo.registry.Registry;
import org.apache.dubbo.registry.RegistryFactory;

/**
 * Runs Dubbo's own client of a Nacos registry; the first argument is the URL of the registry. Each
 * line of standard input is a command and a URL: "register", "unregister" or "subscribe". After
 * each command the process prints "done". For each list of providers that the registry reports, it
 * prints a line with the word "providers" and the sorted URLs.
 */
public final class Peer {

    private Peer() {}

    public static void main(String[] args) throws Exception {
        RegistryFactory factory = ExtensionLoader.getExtensionLoader(RegistryFactory.class).getAdaptiveExtension();
        Registry registry = factory.getRegistry(URL.valueOf(args[0]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 2);
            URL url = URL.valueOf(words[1]);
            switch (words[0]) {
                case "register":
                    registry.register(url);
                    break;
                case "unregister":
                    registry.unregister(url);
                    break;
                default:
                    registry.subscribe(url, urls -> {
                        StringBuilder all = new StringBuilder("providers");
                        TreeSet<String> sorted = new TreeSet<>();
                        urls.forEach(u -> sorted.add(u.toFullString()));
                        sorted.forEach(u -> all.append(' ').append(u));
                        System.out.println(all);
                    });
            }
            System.out.println("done");
        }
        System.exit(0);
    }
}
